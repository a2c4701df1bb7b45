//! An EROFS image as a tree.
