//! Increments: which files are found in the base, and which must be read for that.

use kiln_builder::{BuildOptions, Control, Preset};
use kiln_output::MemoryOutput;
use kiln_read::MemorySource;
use kiln_revise::{BaseImage, IncrementBase, Stamps, Trust, increment};
use kiln_source::dir::DirSource;
use kiln_source::{Scan, ScanOptions, Scanned, Source, SourceError};
use kiln_tests::temp::TempDir;
use kiln_tree::{Content, ContentError, ContentId, Contents, NodeId, Stored, StoredDigest, Stores, Tree, Version};
use std::fs::{self, File, FileTimes};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Stop flag that is never set.
static GOING: AtomicBool = AtomicBool::new(false);

/// A directory that counts how often its files are opened.
struct Counted {
    dir: DirSource,
    opened: Arc<AtomicU32>,
}

impl Source for Counted {
    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn read(&self, options: &ScanOptions<'_>) -> Result<Scanned, SourceError> {
        let counted = |scan: Scan| {
            let opened = self.opened.clone();
            let tree = scan.tree.with_contents(|contents| Box::new(CountedContents { contents, opened }));
            Scan { tree, ..scan }
        };
        Ok(match self.dir.read(options)? {
            Scanned::Selected(scan) => Scanned::Selected(counted(scan)),
            Scanned::Everything(scan) => Scanned::Everything(counted(scan)),
        })
    }
}

struct CountedContents {
    contents: Box<dyn Contents>,
    opened: Arc<AtomicU32>,
}

impl Contents for CountedContents {
    fn open(&self, id: ContentId, path: &[u8], version: Version) -> Result<Box<dyn Content>, ContentError> {
        self.opened.fetch_add(1, Ordering::Relaxed);
        self.contents.open(id, path, version)
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

/// A directory with an image of it.
struct Fixture {
    dir: TempDir,
    base: IncrementBase,
}

/// Returns lines of text.
fn text(seed: usize, len: usize) -> Vec<u8> {
    let lines = (0..).flat_map(|line| format!("{} of {seed}\n", line * 7919 % 100_003).into_bytes());
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
        let opened = Arc::new(AtomicU32::new(0));
        let source = Counted { dir: DirSource::new(self.dir.path()), opened: opened.clone() };
        let tree = increment(&source, &self.base, &ScanOptions::new(&GOING)).unwrap().tree;
        (tree, opened.load(Ordering::Relaxed))
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
