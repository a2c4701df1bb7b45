//! Increments: which files are found in the base, and which must be read for that.

use kiln_builder::{BuildOptions, Control, Preset};
use kiln_output::MemoryOutput;
use kiln_read::{FollowLast, Image, ImageOptions, MemorySource};
use kiln_revise::{BaseImage, IncrementBase, Stamps, Trust, increment};
use kiln_source::dir::DirSource;
use kiln_source::{Scan, ScanOptions, Source, SourceEntries, SourceError};
use kiln_tests::temp::TempDir;
use kiln_tree::{Content, ContentError, ContentId, Contents, NodeId, Stored, StoredDigest, Stores, Tree, Version};
use std::fs::{self, File, FileTimes};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Stop flag that is never set.
static GOING: AtomicBool = AtomicBool::new(false);

/// Ranges of contents that were read, by content id.
type ReadRanges = Arc<Mutex<Vec<(u32, Range<u64>)>>>;

/// A directory that counts how often its files are opened, and records which ranges are read.
struct Counted {
    dir: DirSource,
    opened: Arc<AtomicU32>,
    read: ReadRanges,
}

impl Source for Counted {
    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn read(&self, options: &ScanOptions<'_>) -> Result<SourceEntries, SourceError> {
        let counted = |scan: Scan| {
            let (opened, read) = (self.opened.clone(), self.read.clone());
            let tree = scan.tree.with_contents(|contents| Box::new(CountedContents { contents, opened, read }));
            Scan { tree, ..scan }
        };
        Ok(match self.dir.read(options)? {
            SourceEntries::Selected(scan) => SourceEntries::Selected(counted(scan)),
            SourceEntries::Everything(scan) => SourceEntries::Everything(counted(scan)),
        })
    }
}

struct CountedContents {
    contents: Box<dyn Contents>,
    opened: Arc<AtomicU32>,
    read: ReadRanges,
}

impl Contents for CountedContents {
    fn open(&self, id: ContentId, path: &[u8], version: Version) -> Result<Box<dyn Content>, ContentError> {
        self.opened.fetch_add(1, Ordering::Relaxed);
        let (content, read) = (self.contents.open(id, path, version)?, self.read.clone());
        Ok(Box::new(CountedContent { id: id.0, content, read }))
    }

    fn stored(&self, id: ContentId, len: u64) -> Result<Stored, ContentError> {
        self.contents.stored(id, len)
    }

    fn stored_digest(&self, id: ContentId) -> Result<Option<StoredDigest>, ContentError> {
        self.contents.stored_digest(id)
    }

    fn stores(&self) -> Stores {
        self.contents.stores()
    }
}

struct CountedContent {
    id: u32,
    content: Box<dyn Content>,
    read: ReadRanges,
}

impl Content for CountedContent {
    fn read_exact_at(&mut self, buf: &mut [u8], off: u64) -> Result<(), ContentError> {
        self.read.lock().unwrap().push((self.id, off..off + buf.len() as u64));
        self.content.read_exact_at(buf, off)
    }

    fn next_data(&mut self, off: u64) -> Result<Option<Range<u64>>, ContentError> {
        self.content.next_data(off)
    }

    fn verify_unchanged(&mut self) -> Result<(), ContentError> {
        self.content.verify_unchanged()
    }
}

/// A directory with an image of it.
struct Fixture {
    dir: TempDir,
    base: IncrementBase,
}

/// Returns lines of text.
fn text(seed: usize, len: usize) -> Vec<u8> {
    let lines = (0_u64..).flat_map(|line| format!("{} of {seed}\n", line * 7_919 % 10_000_019).into_bytes());
    lines.take(len).collect()
}

fn write(path: &Path, bytes: &[u8], secs: u64) {
    fs::write(path, bytes).unwrap();
    let time = FileTimes::new().set_modified(UNIX_EPOCH + Duration::from_secs(secs));
    File::options().write(true).open(path).unwrap().set_times(time).unwrap();
}

/// Waits until a file is unchanged for so long that it gets a stamp.
fn settle(path: &Path) {
    let changed = fs::metadata(path).unwrap().ctime() as u64;
    while SystemTime::now() < UNIX_EPOCH + Duration::from_secs(changed + 3) {
        std::thread::sleep(Duration::from_millis(50));
    }
}

impl Fixture {
    /// Makes these files with the same time, unchanged for long enough to get stamps.
    fn new(files: &[(&str, Vec<u8>)], trust: Trust) -> Self {
        let dir = TempDir::new("increment").unwrap();
        for (name, bytes) in files {
            let path = dir.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            write(&path, bytes, 1_600_000_000);
        }
        if trust == Trust::Times {
            settle(&dir.join(files[files.len() - 1].0));
        }
        let scan = DirSource::new(dir.path()).scan(&ScanOptions::new(&GOING)).unwrap();
        let output = MemoryOutput::default();
        let control = Control { stop: &GOING, progress: &|_| {} };
        let options = BuildOptions::preset(Preset::Balanced, None).unwrap();
        kiln_builder::build(&scan.tree, &output, &options, &control).unwrap();
        let source = Arc::new(MemorySource::new(output.into_bytes()));
        let image = Arc::new(BaseImage::in_place(source, 0, "base".as_ref(), None).unwrap());
        let mut lines = Vec::new();
        Stamps::write(&mut lines, image.identity(), &scan.tree, scan.stamps.as_ref().unwrap()).unwrap();
        let stamps = Stamps::parse(&lines, "stamps", image.identity()).unwrap();
        let stamps = stamps.filter(|_| trust == Trust::Times);
        Self { dir, base: IncrementBase { image, trust, stamps } }
    }

    fn rename(&self, from: &str, to: &str) {
        fs::rename(self.dir.join(from), self.dir.join(to)).unwrap();
    }

    /// Returns the increment of the directory, and the number of files that were opened for it.
    fn increment(&self) -> (Tree, u32) {
        let (opened, read) = (Arc::new(AtomicU32::new(0)), ReadRanges::default());
        (self.increment_counted(&opened, &read), opened.load(Ordering::Relaxed))
    }

    fn increment_counted(&self, opened: &Arc<AtomicU32>, read: &ReadRanges) -> Tree {
        let (opened, read) = (opened.clone(), read.clone());
        let source = Counted { dir: DirSource::new(self.dir.path()), opened, read };
        increment(&source, &self.base, &ScanOptions::new(&GOING)).unwrap().tree
    }
}

fn node(tree: &Tree, path: &str) -> NodeId {
    tree.find(path.split('/').map(str::as_bytes)).unwrap()
}

fn is_reused(tree: &Tree, path: &str) -> bool {
    matches!(tree.stored(node(tree, path)).unwrap(), Stored::Reused(_))
}

#[test]
fn stamps_prove_that_files_of_a_moved_directory_are_what_they_were() {
    let files = [("old/a", text(1, 90_000)), ("old/b", text(2, 5000)), ("c", text(3, 5000)), ("log", text(4, 300_000))];
    let fixture = Fixture::new(&files, Trust::Times);
    let (tree, opened) = fixture.increment();
    assert_eq!((opened, files.iter().filter(|(path, _)| is_reused(&tree, path)).count()), (0, 4));
    fixture.rename("old", "new");
    let (tree, opened) = fixture.increment();
    assert_eq!(opened, 0);
    assert!(is_reused(&tree, "new/a") && is_reused(&tree, "new/b") && is_reused(&tree, "c"));
    // Renaming a file changes its ctime.
    fixture.rename("c", "d");
    let (tree, opened) = fixture.increment();
    assert_eq!(opened, 1);
    assert!(is_reused(&tree, "new/a") && is_reused(&tree, "d"));
    // The inode identifies a file that has grown and been renamed.
    let log = fixture.dir.join("log");
    write(&log, &[text(4, 300_000), text(5, 9000)].concat(), 1_600_000_100);
    fixture.rename("log", "log.1");
    write(&log, &text(6, 300_001), 1_600_000_200);
    settle(&log);
    let (tree, _) = fixture.increment();
    assert!(!is_reused(&tree, "log.1"));
    let Stored::Previous(previous) = tree.stored(node(&tree, "log.1")).unwrap() else { panic!("no previous version") };
    assert_eq!(previous.len, 300_000);
}

#[test]
fn bytes_decide_where_nothing_else_does() {
    let files: Vec<_> =
        ["a", "b", "c", "d"].into_iter().zip(1..).map(|(name, seed)| (name, text(seed, 5000))).collect();
    let fixture = Fixture::new(&files, Trust::Contents);
    for (from, to) in [("a", "x"), ("b", "y"), ("c", "z")] {
        fixture.rename(from, to);
    }
    // Same length, same time, and another file.
    write(&fixture.dir.join("z"), &text(9, 5000), 1_600_000_000);
    // Another time, and the same name elsewhere.
    fs::create_dir(fixture.dir.join("dir")).unwrap();
    fixture.rename("d", "dir/d");
    write(&fixture.dir.join("dir/d"), &text(4, 5000), 1_600_000_999);
    let (tree, opened) = fixture.increment();
    let reused = ["x", "y", "z", "dir/d"].map(|path| is_reused(&tree, path));
    assert_eq!(reused, [true, true, false, true]);
    assert!(opened > 0);
    for (path, seed) in [("x", 1), ("y", 2), ("z", 9), ("dir/d", 4)] {
        let mut bytes = vec![0; 5000];
        tree.open(node(&tree, path)).unwrap().read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes == text(seed, 5000), "{path}");
    }
}

#[test]
fn bytes_of_changed_files_are_read_once() {
    let files = [
        ("patched", text(1, 3_000_000)),
        ("grown", text(2, 1_000_000)),
        ("cut", text(3, 1_000_000)),
        ("rewritten", text(4, 400_000)),
        ("short", text(5, 30_000)),
        ("same", text(6, 600_000)),
    ];
    let fixture = Fixture::new(&files, Trust::Contents);
    let folder = TempDir::new("increment-base").unwrap();
    let image = folder.join("base.erofs");
    let scan = DirSource::new(fixture.dir.path()).scan(&ScanOptions::new(&GOING)).unwrap();
    let control = Control { stop: &GOING, progress: &|_| {} };
    let options = BuildOptions::preset(Preset::Balanced, None).unwrap();
    let pack = |tree: &Tree| {
        let output = MemoryOutput::default();
        let summary = kiln_builder::build(tree, &output, &options, &control).unwrap();
        (output.into_bytes(), summary)
    };
    fs::write(&image, pack(&scan.tree).0).unwrap();
    let base =
        IncrementBase { image: Arc::new(BaseImage::open(&image).unwrap()), trust: Trust::Contents, stamps: None };
    let fixture = Fixture { base, ..fixture };
    let mut patched = files[0].1.clone();
    [10, 1_500_000, 2_999_990].iter().for_each(|&at| patched[at] ^= 1);
    let grown = [&files[1].1[..], &text(7, 50_000)].concat();
    let mut short = files[4].1.clone();
    short[20_000] ^= 1;
    let new = [&patched[..], &grown, &files[2].1[..700_000], &text(8, 400_000), &short, &files[5].1];
    for ((name, _), bytes) in files.iter().zip(new) {
        write(&fixture.dir.join(name), bytes, 1_600_000_500);
    }
    let (opened, read) = (Arc::default(), ReadRanges::default());
    let tree = fixture.increment_counted(&opened, &read);
    let (bytes, summary) = pack(&tree);
    assert!(summary.reused_bytes > 3_000_000, "{summary:?}");
    let mut ranges = read.lock().unwrap().clone();
    ranges.sort_by_key(|(id, range)| (*id, range.start, range.end));
    for pair in ranges.windows(2) {
        assert!(pair[0].0 != pair[1].0 || pair[0].1.end <= pair[1].1.start, "{pair:?}: read twice");
    }
    let all: u64 = ranges.iter().map(|(_, range)| range.end - range.start).sum();
    assert_eq!(all, new.iter().map(|bytes| bytes.len() as u64).sum::<u64>());
    let image = Image::open(Arc::new(MemorySource::new(bytes)), Vec::new(), &ImageOptions::default()).unwrap();
    for ((name, _), bytes) in files.iter().zip(new) {
        let inode = image.resolve(name.as_bytes(), FollowLast::Keep).unwrap();
        let mut found = vec![0; bytes.len()];
        assert_eq!(image.read_at(&inode, &mut found, 0).unwrap(), bytes.len());
        assert!(found == bytes, "{name}");
    }
}
