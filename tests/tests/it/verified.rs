//! Images that are read by their root hash: single flipped bits anywhere under the hash tree never give a wrong byte.

use kiln_read::{
    ExtentKind, FileRange, Image, ImageSources, Inode, MemorySource, RangeMut, ReadAt, ReadError, SourceLayer, Threads,
};
use kiln_tests::data::Texture;
use kiln_tests::rng::Rng;
use kiln_tests::rounds;
use kiln_tests::temp::TempDir;
use kilnfs::output::MemoryOutput;
use kilnfs::verity::{Control, Digest, Parameters, RootHashes, SUPERBLOCK_LEN, Tree};
use kilnfs::{Packer, Preset};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// Attributes and contents of each inode that can be read, and the errors of all others.
#[derive(Default)]
struct Content {
    files: BTreeMap<Vec<u8>, (Inode, Vec<u8>)>,
    errors: Vec<ReadError>,
}

impl Content {
    /// Reads everything, in several ways that must agree.
    fn of(image: &Image) -> Self {
        let mut content = Self::default();
        let root = match image.inode(image.root_nid()) {
            Ok(root) => root,
            Err(error) => return Self { errors: vec![error], ..content },
        };
        let mut regular = Vec::new();
        for entry in image.walk(&root, b"") {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    content.errors.push(error);
                    continue;
                }
            };
            let bytes = match entry.inode.is_dir() {
                true => Ok(Vec::new()),
                false if entry.inode.is_symlink() => image.read_link(&entry.inode),
                false => {
                    regular.push((entry.path.clone(), entry.inode));
                    read(image, &entry.inode)
                }
            };
            match bytes {
                Ok(bytes) => drop(content.files.insert(entry.path, (entry.inode, bytes))),
                Err(error) => content.errors.push(error),
            }
        }
        let whole = |(_, inode): &(Vec<u8>, Inode)| FileRange { inode: *inode, range: 0..u64::MAX };
        let ranges: Vec<_> = regular.iter().map(whole).collect();
        let errors = Mutex::new(Vec::new());
        image.read_many(&ranges, Threads::at_least_one(2), &|item| match item.bytes {
            Ok(bytes) => {
                let (path, start) = (&regular[item.idx].0, item.off as usize);
                if let Some((_, read)) = content.files.get(path) {
                    assert!(read[start..start + bytes.len()] == *bytes, "{}: two ways", path.escape_ascii());
                }
            }
            Err(error) => errors.lock().unwrap().push(error),
        });
        content.errors.extend(errors.into_inner().unwrap());
        content
    }
}

fn read(image: &Image, inode: &Inode) -> Result<Vec<u8>, ReadError> {
    let mut bytes = vec![0; inode.meta.size as usize];
    let mut at = 0;
    while at < bytes.len() {
        let end = (at + 50_000).min(bytes.len());
        at += image.read_at(inode, &mut bytes[at..end], at as u64)?;
    }
    Ok(bytes)
}

/// A source that notes what is read.
struct Noted {
    bytes: MemorySource,
    read: Mutex<Vec<Range<u64>>>,
}

impl ReadAt for Noted {
    fn len(&self) -> io::Result<u64> {
        self.bytes.len()
    }

    fn read_exact_at(&self, buf: &mut [u8], off: u64) -> io::Result<()> {
        self.read.lock().unwrap().push(off..off + buf.len() as u64);
        self.bytes.read_exact_at(buf, off)
    }

    fn read_ranges(&self, ranges: &mut [RangeMut<'_>]) -> io::Result<()> {
        ranges.iter_mut().try_for_each(|range| self.read_exact_at(range.buf, range.off))
    }

    fn borrow(&self, _off: u64, _len: usize) -> Option<&[u8]> {
        None
    }

    fn will_need(&self, _off: u64, _len: u64) {}
}

/// An image with its tree behind it.
struct Sealed {
    bytes: Vec<u8>,
    /// End of the data.
    hash_off: u64,
    root_hash: Digest,
}

impl Sealed {
    fn new(image: &[u8], parameters: &Parameters) -> Self {
        let mut bytes = image.to_vec();
        bytes.resize(parameters.data_len() as usize, 0);
        let tree = Tree::of_data(&MemorySource::new(bytes.clone()), parameters, &Control::unwatched()).unwrap();
        let hash_off = bytes.len() as u64;
        tree.write(&tree.superblock(None), hash_off, &mut bytes).unwrap();
        Self { bytes, hash_off, root_hash: *tree.root_hash() }
    }

    fn layer(&self) -> SourceLayer {
        RootHashes::from(self.root_hash).layer_of_source().unwrap()
    }

    fn open(&self, source: Arc<dyn ReadAt>) -> Result<Image, ReadError> {
        ImageSources::new(source).with_layer(self.layer()).open(&Default::default())
    }
}

/// Packs files that are stored in all ways.
fn image(preset: Preset) -> Vec<u8> {
    let dir = TempDir::new("verified").unwrap();
    let root = dir.join("src");
    fs::create_dir_all(root.join("sub")).unwrap();
    for (seed, texture) in Texture::ALL.into_iter().enumerate() {
        for len in [0, 100, 5000, 150_000] {
            fs::write(root.join(format!("sub/{texture:?}-{len}")), texture.bytes(seed as u64, len)).unwrap();
        }
    }
    std::os::unix::fs::symlink("sub", root.join("link")).unwrap();
    let memory = MemoryOutput::default();
    Packer::new().preset(preset).pack_to(&root, &memory).unwrap();
    memory.into_bytes()
}

/// Returns true if a flip of a bit in byte `at` must be noticed by a read that reads `read` of a good image.
fn is_needed(sealed: &Sealed, read: &[Range<u64>], at: u64) -> bool {
    // Of the superblock of the tree nothing is bound by the root hash but what decides where and how to hash.
    let superblock = sealed.hash_off..sealed.hash_off + SUPERBLOCK_LEN as u64;
    !superblock.contains(&at) && read.iter().any(|range| range.contains(&at))
}

#[test]
fn single_bits_never_give_a_wrong_byte() {
    let flips = rounds("KILN_FLIPS", 300, 3000);
    let sizes = [(4096, 4096), (512, 512), (4096, 512), (1024, 4096)];
    let mut noticed = 0;
    for (seed, preset) in Preset::ALL.into_iter().enumerate() {
        let image = image(preset);
        let (data_block_size, hash_block_size) = sizes[seed % sizes.len()];
        let data_blocks = (image.len() as u64).div_ceil(data_block_size.into());
        let parameters = Parameters { data_block_size, hash_block_size, ..Parameters::new(data_blocks) };
        let mut sealed = Sealed::new(&image, &parameters);
        let noted = Arc::new(Noted { bytes: MemorySource::new(sealed.bytes.clone()), read: Mutex::default() });
        let good = Content::of(&sealed.open(noted.clone()).unwrap());
        assert!(good.errors.is_empty(), "{:?}", good.errors);
        assert_eq!(good.files.len(), 4 * Texture::ALL.len() + 3);
        let read = std::mem::take(&mut *noted.read.lock().unwrap());
        let mut rng = Rng::new(seed as u64);
        for _ in 0..flips / Preset::ALL.len() as u64 {
            // Half of the flips in the tree, which is short.
            let range = if rng.below(2) == 0 { 0..sealed.hash_off } else { sealed.hash_off..sealed.bytes.len() as u64 };
            let (at, bit) = (range.start + rng.below(range.end - range.start), rng.below(8));
            sealed.bytes[at as usize] ^= 1 << bit;
            let found = match sealed.open(Arc::new(MemorySource::new(sealed.bytes.clone()))) {
                Ok(image) => Content::of(&image),
                Err(error) => Content { errors: vec![error], ..Content::default() },
            };
            sealed.bytes[at as usize] ^= 1 << bit;
            for (path, file) in &found.files {
                assert!(good.files.get(path) == Some(file), "{preset:?}, byte {at}: {}", path.escape_ascii());
            }
            let is_needed = is_needed(&sealed, &read, at);
            assert!(!is_needed || !found.errors.is_empty(), "{preset:?}: byte {at} is wrong, and nothing is noticed");
            noticed += u64::from(!found.errors.is_empty());
            for error in found.errors {
                assert!(matches!(error, ReadError::Io { .. }), "{preset:?}, byte {at}: {error}");
                assert_eq!(error.errno(), 5, "EIO");
            }
        }
    }
    assert!(noticed > flips / 2, "{noticed} of {flips}");
}

#[test]
fn a_wrong_block_of_a_list_of_files_is_an_error_of_its_files_alone() {
    let image = image(Preset::Plain);
    let mut sealed = Sealed::new(&image, &Parameters::new((image.len() as u64).div_ceil(4096)));
    let good = Content::of(&sealed.open(Arc::new(MemorySource::new(sealed.bytes.clone()))).unwrap());
    let path = good.files.keys().find(|path| path.ends_with(b"-150000")).unwrap();
    let open = kiln_tests::image::open(image).unwrap();
    let extent = open.extent_at(&good.files[path].0, 0).unwrap();
    let ExtentKind::Raw { pa, .. } = extent.kind else { panic!("{extent:?}") };
    sealed.bytes[pa as usize + 8192] ^= 1;
    let found = Content::of(&sealed.open(Arc::new(MemorySource::new(sealed.bytes.clone()))).unwrap());
    assert_eq!(found.files.len() + 1, good.files.len(), "the errors: {:?}", found.errors);
    assert!(!found.files.contains_key(path) && !found.errors.is_empty());
    for error in found.errors {
        assert!(error.to_string().contains("wrong digest"), "{error}");
    }
}

#[test]
fn wrong_blocks_beside_what_is_read_do_no_harm() {
    let mut bytes = image(Preset::Plain);
    let end = bytes.len();
    bytes.resize(end.next_multiple_of(4096) + (64 << 10), 0);
    let mut sealed = Sealed::new(&bytes, &Parameters::new(bytes.len() as u64 / 4096));
    // Windows of metadata are fetched with their neighbours.
    for at in (end.next_multiple_of(4096)..bytes.len()).step_by(4096) {
        sealed.bytes[at] ^= 1;
    }
    let found = Content::of(&sealed.open(Arc::new(MemorySource::new(sealed.bytes.clone()))).unwrap());
    assert!(found.errors.is_empty(), "{:?}", found.errors);
}
