"""hubbub beside other frequency oracles at one epsilon: exact count laws, and the packages pure-LDP and multi-freq-ldpy."""
