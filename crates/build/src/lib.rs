//! A tree as an EROFS image.
