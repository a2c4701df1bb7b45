//! An EROFS image as other things.
