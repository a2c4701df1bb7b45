//! The module `kilnfs._native`.
