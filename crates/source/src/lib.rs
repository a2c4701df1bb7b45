//! Foreign things as a tree.
