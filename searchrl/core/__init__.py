"""Floor 0: facts. Episodes, token ledgers and the mathematics; imports nothing here."""
