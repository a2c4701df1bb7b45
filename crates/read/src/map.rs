//! From offsets in a file to where the bytes are stored. Lookups read metadata only, and change nothing.

pub(crate) mod compressed;
pub(crate) mod compressed_file;
pub(crate) mod encoded_extents;
pub(crate) mod extent;
pub(crate) mod extents;
pub(crate) mod inode_map;
pub(crate) mod lcluster_index;
pub(crate) mod pcluster;
