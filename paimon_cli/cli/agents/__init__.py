"""`paimon-cli mcp`: the tables of one warehouse as tools for agents, which read, plan, and change nothing without a token."""
