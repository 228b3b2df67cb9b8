"""SQL text: types of columns, CREATE TABLE, conditions, expressions, SET clauses."""
