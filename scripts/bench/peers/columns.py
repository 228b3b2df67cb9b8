"""The columns of the table that every side writes; decimals and times cost some engines more than numbers do."""

COLUMNS = {
    "id": "BIGINT NOT NULL",
    "qty": "INT",
    "amount": "DOUBLE",
    "price": "DECIMAL(18, 2)",
    "ts": "TIMESTAMP(3)",
    "status": "STRING",
    "note": "STRING",
}
