"""Files from outside: how they are packed, which format they have, their text, cells and origin."""
