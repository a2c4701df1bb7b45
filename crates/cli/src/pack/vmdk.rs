//! Descriptors that make one virtual disk of an image and its extra device, for virtual machines: plain text, with sectors of
//! 512 bytes.

use crate::exit::Failure;
use kiln_output::AtomicFile;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Bytes of a sector, at which loop devices and partitions begin, too.
pub const SECTOR_LEN: u64 = 512;
/// Sectors of a cylinder in the geometry that virtual IDE disks have: 16 heads, 63 sectors.
const CYLINDER_SECTORS: u64 = 16 * 63;

/// A descriptor in the making.
pub struct Descriptor {
    path: PathBuf,
    file: AtomicFile,
}

impl Descriptor {
    /// The one in `file`, which the user calls `path`, is to name `files`.
    pub fn create<'a>(
        path: &Path,
        file: AtomicFile,
        files: impl IntoIterator<Item = &'a Path>,
    ) -> Result<Self, Failure> {
        let refuse = |reason: String| Failure::Usage(format!("{}: {reason}", path.display()));
        for file in files {
            if !can_name(file) {
                return Err(refuse(format!("a descriptor cannot name {}", file.display())));
            }
        }
        Ok(Self { path: path.to_owned(), file })
    }

    /// The file that is to hold it.
    pub fn file(&self) -> &AtomicFile {
        &self.file
    }

    /// Write it, and give it its name, once what it describes has its own. Extents: file, first byte in it, length in bytes.
    pub fn commit(self, uuid: [u8; 16], extents: &[(&Path, u64, u64)]) -> Result<(), Failure> {
        let id = u32::from_be_bytes([uuid[0], uuid[1], uuid[2], uuid[3]]);
        let written = self.file.file().write_all(&describe(id, extents));
        written.map_err(|source| Failure::File { path: self.path, action: "write", source })?;
        Ok(self.file.commit()?)
    }
}

/// Returns true if a descriptor can name a file: names are between quotation marks, in a line.
pub fn can_name(file: &Path) -> bool {
    !file.as_os_str().as_bytes().iter().any(|byte| matches!(byte, b'"' | b'\n'))
}

/// The text.
fn describe(id: u32, extents: &[(&Path, u64, u64)]) -> Vec<u8> {
    let mut text = format!("# Disk DescriptorFile\nversion=1\nCID={id:08x}\nparentCID=ffffffff\n").into_bytes();
    text.extend(b"createType=\"twoGbMaxExtentFlat\"\n\n# Extent description\n");
    let mut sectors = 0;
    for (file, start, len) in extents {
        let (first_sector, len) = (start / SECTOR_LEN, len.div_ceil(SECTOR_LEN));
        text.extend(format!("RW {len} FLAT \"").bytes());
        text.extend(file.as_os_str().as_bytes());
        text.extend(format!("\" {first_sector}\n").bytes());
        sectors += len;
    }
    let cylinders = sectors.div_ceil(CYLINDER_SECTORS).max(1);
    text.extend(b"\n# The Disk Data Base\n#DDB\n\nddb.virtualHWVersion = \"4\"\n");
    text.extend(format!("ddb.geometry.cylinders = \"{cylinders}\"\nddb.geometry.heads = \"16\"\n").bytes());
    text.extend(b"ddb.geometry.sectors = \"63\"\nddb.adapterType = \"ide\"\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_are_in_sectors() {
        let text = describe(0xAB, &[(Path::new("image"), 4096, 600_000), (Path::new("chunks"), 0, 303_104)]);
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("\nCID=000000ab\n"), "{text}");
        assert!(text.contains("\nRW 1172 FLAT \"image\" 8\nRW 592 FLAT \"chunks\" 0\n\n"), "{text}");
        assert!(text.contains("cylinders = \"2\"\n"), "{text}");
    }
}
