"""The columns of the table that all sides write. Decimals and timestamps cost some engines more than integers do."""

COLUMNS = {
    "id": "BIGINT NOT NULL",
    "qty": "INT",
    "amount": "DOUBLE",
    "price": "DECIMAL(18, 2)",
    "ts": "TIMESTAMP(3)",
    "status": "STRING",
    "note": "STRING",
}
