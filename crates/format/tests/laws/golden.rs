//! Images of another builder: decoded records encode to the same bytes.

use kiln_format::dirent::DirBlock;
use kiln_format::inode::{CompactTimes, Epoch, FileType, Form, Inode, InodeData};
use kiln_format::superblock::{SUPERBLOCK_OFF, Superblock, checksum, checksum_len};
use kiln_format::{Blkaddr, Compat, Incompat, Nid};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Returns the golden images; none if this crate is tested outside the workspace.
fn images() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../read/tests/golden");
    let listed = std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    let mut images: Vec<_> = listed.filter(|path| path.extension().is_some_and(|e| e == "erofs")).collect();
    images.sort();
    if images.is_empty() {
        assert!(std::env::var_os("KILN_NO_SKIP").is_none(), "no golden images");
        println!("SKIP: no golden images");
    }
    images
}

/// An image, read by the simplest means: the inodes outside the metabox that uncompressed
/// directories name.
struct Golden {
    bytes: Vec<u8>,
    sb: Superblock,
}

impl Golden {
    fn open(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap();
        let sb = Superblock::decode(&bytes[SUPERBLOCK_OFF as usize..]).unwrap();
        Self { bytes, sb }
    }

    fn epoch(&self) -> Epoch {
        Epoch { secs: self.sb.epoch, nsec: self.sb.fixed_nsec }
    }

    fn block_off(&self, addr: Blkaddr) -> usize {
        self.sb.block_bits.byte_off(addr).unwrap() as usize
    }

    fn inode(&self, nid: Nid) -> (usize, Inode) {
        let off = self.block_off(self.sb.meta_blkaddr) + nid.byte_off().unwrap() as usize;
        (off, Inode::decode(&self.bytes[off..], off as u64, self.epoch(), self.sb.block_bits).unwrap())
    }

    /// Returns the contents of an uncompressed directory.
    fn contents(&self, off: usize, inode: &Inode) -> Vec<u8> {
        let size = inode.size as usize;
        // Without whole blocks the start address has no meaning.
        let run = |start: Blkaddr, len: usize| match len {
            0 => &[],
            _ => &self.bytes[self.block_off(start)..][..len],
        };
        match inode.data {
            InodeData::FlatPlain(Some(start)) => run(start, size).to_vec(),
            InodeData::FlatInline(start) => {
                let whole = self.sb.block_bits.floor(inode.size) as usize;
                let tail = off + inode.body_off() as usize;
                [run(start, whole), &self.bytes[tail..tail + size - whole]].concat()
            }
            _ => Vec::new(),
        }
    }

    fn nids(&self) -> BTreeSet<u64> {
        let mut found = BTreeSet::new();
        let mut open = vec![self.sb.root_nid];
        while let Some(nid) = open.pop().filter(|nid| !nid.in_metabox()) {
            let (off, inode) = self.inode(nid);
            if !found.insert(nid.0) || inode.file_type != FileType::Directory {
                continue;
            }
            let contents = self.contents(off, &inode);
            for block in contents.chunks(self.sb.block_bits.len() as usize) {
                open.extend(DirBlock::new(block, 0).unwrap().entries().map(|entry| entry.unwrap().nid));
            }
        }
        found
    }
}

#[test]
fn superblocks_encode_to_the_same_bytes() {
    for path in images() {
        let golden = Golden::open(&path);
        let covered = &golden.bytes[SUPERBLOCK_OFF as usize..][..checksum_len(golden.sb.block_bits)];
        if golden.sb.compat.contains(Compat::SB_CHKSUM) {
            assert_eq!(checksum(covered), golden.sb.checksum, "{}", path.display());
        }
        let record = &golden.bytes[SUPERBLOCK_OFF as usize..][..golden.sb.record_len as usize];
        assert_eq!(golden.sb.encode().as_deref(), Ok(record), "{}", path.display());
        let behind = &golden.bytes[SUPERBLOCK_OFF as usize + golden.sb.record_len as usize..];
        if golden.sb.incompat.contains(Incompat::COMPR_CFGS) {
            let cfgs = golden.sb.compr_cfgs(behind).unwrap().encode().unwrap();
            assert_eq!(cfgs, behind[..cfgs.len()], "{}", path.display());
        }
    }
}

#[test]
fn inodes_encode_to_the_same_bytes() {
    for path in images() {
        let golden = Golden::open(&path);
        let nids = golden.nids();
        assert!(nids.len() > 1 || golden.sb.metabox_nid.is_some(), "{}: only a root", path.display());
        for nid in nids {
            let (off, inode) = golden.inode(Nid(nid));
            let record = golden.bytes[off..off + inode.form.len()].to_vec();
            let shown = format!("{}: nid {nid}: {inode:?}", path.display());
            // Kernels before 6.15 ignore a compact inode's own time.
            if inode.form == Form::Compact && record[12..16] != [0; 4] {
                assert!(inode.encode(golden.epoch(), CompactTimes::Shared, golden.sb.block_bits).is_err(), "{shown}");
            }
            assert_eq!(
                inode.encode(golden.epoch(), CompactTimes::Own, golden.sb.block_bits).as_ref(),
                Ok(&record),
                "{shown}"
            );
        }
    }
}
