"""Events of change streams (Debezium, Canal, Maxwell) as rows with kinds, table by table."""
