//! An EROFS image as a mounted filesystem.
