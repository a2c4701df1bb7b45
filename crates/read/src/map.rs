//! From offsets in a file to where the bytes are stored. Lookups read metadata only, and change
//! nothing.

mod compressed;
mod compressed_file;
pub(crate) mod data_part;
pub(crate) mod encoded_extent;
mod encoded_extents;
pub(crate) mod extent;
pub(crate) mod extents;
pub(crate) mod file_map;
pub(crate) mod inode_map;
mod lcluster_index;
