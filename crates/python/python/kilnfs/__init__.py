"""EROFS images as datasets: one file instead of millions, read without mounting."""
