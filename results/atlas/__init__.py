"""The atlas: every strategy on many federations, what helps where, and whether that predicts what helps on an unseen federation."""
