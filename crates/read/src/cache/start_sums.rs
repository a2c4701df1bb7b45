//! Addresses of encoded extents whose records hold a length alone.

use kiln_format::Nid;
use quick_cache::sync::Cache;

/// Sums that are kept: each covers 512 extents, which takes a microsecond to sum up.
const SUMS_MAX: usize = 8192;

/// Sums of stored lengths, at every [`STRIDE`](crate::map::encoded_extents)th record of 4-byte
/// tables.
///
/// Such a record holds a length alone: its address is the sum of all lengths before it. With the
/// sums, a lookup in a table that was visited before adds at most that many lengths, in one window
/// of metadata.
pub(crate) struct StartSums {
    pub sums: Cache<(Nid, u64), u64>,
}

impl Default for StartSums {
    fn default() -> Self {
        Self { sums: Cache::new(SUMS_MAX) }
    }
}
