"""What tables, captions and the terminal say beside their numbers: costs, seeds, rows without a rank, failed training."""
