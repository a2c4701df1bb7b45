//! Images of composefs with their objects.

use kiln_composefs::{dump, image};
use kiln_digest::{Algorithm, Digest, fsverity};
use kiln_read::{
    CheckReport, DirEntries, ExtentKind, FileRange, FileRangeMut, FollowLast, Image, ImageOptions, MemorySource,
    ObjectProblem, ObjectVerification, Objects, ReadError, ScanFilter, SeekWhat, Threads,
};
use kiln_tests::temp::TempDir;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const ROOT: &str = "/ 0 40755 2 0 0 0 0.0 - - -\n";

fn contents(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 7) as u8 ^ (at / 1024) as u8 ^ seed).collect()
}

fn object_path(digest: &Digest) -> String {
    let hex = digest.to_string();
    format!("{}/{}", &hex[..2], &hex[2..])
}

/// Returns the line of a file whose contents are an object.
fn line(path: &str, len: usize, digest: &Digest) -> String {
    format!("{path} {len} 100644 1 0 0 0 0.0 {} - {digest}\n", object_path(digest))
}

/// A store with objects.
struct Store {
    temp: TempDir,
}

impl Store {
    fn new() -> Self {
        Self { temp: TempDir::new("objects").unwrap() }
    }

    fn dir(&self) -> &Path {
        self.temp.path()
    }

    /// Adds an object, and returns its digest and its path.
    fn add(&self, bytes: &[u8], algorithm: Algorithm) -> (Digest, PathBuf) {
        let digest = fsverity::digest(algorithm, bytes);
        let path = self.dir().join(object_path(&digest));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        (digest, path)
    }

    /// Opens the image of a dump with the objects of this store.
    fn open(&self, lines: &str, verification: ObjectVerification) -> Image {
        let objects = Objects::open(&[self.dir()], verification).unwrap();
        open(lines, Some(objects))
    }
}

fn open(lines: &str, objects: Option<Objects>) -> Image {
    let tree = dump::read(format!("{ROOT}{lines}").as_bytes(), &mut |_| {}).unwrap();
    let mut bytes = Vec::new();
    image::write(&tree, &image::ImageOptions::default(), &mut bytes).unwrap();
    let options = ImageOptions::default().with_objects(objects);
    Image::open(Arc::new(MemorySource::new(bytes)), vec![], &options).unwrap()
}

fn read(image: &Image, path: &str) -> Result<Vec<u8>, ReadError> {
    let inode = image.resolve(path.as_bytes(), FollowLast::Keep)?;
    let mut bytes = vec![0; inode.size() as usize];
    image.read_at(&inode, &mut bytes, 0).map(|len| {
        assert_eq!(len, bytes.len());
        bytes
    })
}

fn problem(result: Result<Vec<u8>, ReadError>) -> ObjectProblem {
    match result {
        Err(error @ ReadError::Object { .. }) => {
            assert_eq!(error.errno(), rustix::io::Errno::IO.raw_os_error());
            let ReadError::Object { problem, .. } = error else { unreachable!() };
            *problem
        }
        other => panic!("{other:?}"),
    }
}

/// Changes a file until its time of change is another one: clocks of files are coarse.
fn change(path: &Path, change: impl Fn()) {
    let ctime = || fs::metadata(path).map(|found| (found.ctime(), found.ctime_nsec())).unwrap();
    let before = ctime();
    while ctime() == before {
        change();
    }
}

#[test]
fn every_way_to_read_gives_the_object() {
    for algorithm in Algorithm::ALL {
        let store = Store::new();
        let big = contents(1, 300_001);
        let (digest, _) = store.add(&big, algorithm);
        let small = "/small 5 100644 1 0 0 0 0.0 - hello -\n";
        let image = store.open(&format!("{}{small}", line("/big", big.len(), &digest)), ObjectVerification::Once);
        let inode = image.resolve(b"/big", FollowLast::Keep).unwrap();
        assert_eq!(read(&image, "/big").unwrap(), big);
        assert_eq!(read(&image, "/small").unwrap(), b"hello");
        assert_eq!(&*image.view(&inode, 5000, 100, &mut Vec::new()).unwrap(), &big[5000..5100]);
        assert_eq!(image.read_bytes(&inode, 0..u64::MAX).unwrap(), big);
        let mut buf = vec![0; 400_000];
        let reads = &mut [FileRangeMut { inode, off: 1, buf: &mut buf }];
        let lens = image.read_many_into(reads, Threads::at_least_one(2));
        assert_eq!(lens[0].as_ref().ok(), Some(&300_000));
        assert_eq!(buf[..300_000], big[1..]);
        let ranges = [FileRange { inode, range: 0..300_001 }];
        image.read_many(&ranges, Threads::ONE, &|item| assert_eq!(item.bytes.unwrap(), big));
        assert_eq!(image.seek(&inode, 0, SeekWhat::Data).unwrap(), Some(0));
        assert_eq!(image.seek(&inode, 0, SeekWhat::Hole).unwrap(), Some(300_001));
        let extents: Vec<_> = image.extents(&inode).map(|extent| extent.unwrap()).collect();
        assert_eq!((extents.len(), extents[0].kind, extents[0].llen), (1, ExtentKind::Object, 300_001));
        assert!(image.composefs_object(&inode).unwrap().is_none());
        assert_eq!(image.explain(&inode, 0..4096).unwrap().total().unwrap().fetched, 4096);
        image.usage(Threads::ONE).unwrap();
    }
}

#[test]
fn the_tree_is_that_of_overlayfs() {
    let lines = "/00 0 20644 1 0 0 0 1.0 - - -\n\
                 /d 0 40755 2 0 0 0 0.0 - - - trusted.overlay.opaque=y trusted.overlay.overlay.x=z user.a=b\n\
                 /dev 0 20644 1 0 0 259 0.0 - - -\n\
                 /gone 0 20600 1 0 0 0 0.0 - - -\n";
    let store = Store::new();
    let merged = store.open(lines, ObjectVerification::Once);
    let stored = open(lines, None);
    let names = |image: &Image| -> Vec<Vec<u8>> {
        let root = image.inode(image.root_nid()).unwrap();
        DirEntries::new(image, &root).map(|entry| entry.unwrap().name).collect()
    };
    assert_eq!(names(&merged), [&b"00"[..], b"d", b"dev", b"gone"]);
    assert_eq!(names(&stored).len(), 255 + 4);
    let root = merged.inode(merged.root_nid()).unwrap();
    assert_eq!(merged.walk(&root, b"").count(), 5);
    let table = merged.scan(&root, &ScanFilter::all(), Threads::ONE).table().unwrap();
    assert_eq!(table.len(), 4);
    assert!(matches!(merged.resolve(b"/01", FollowLast::Keep), Err(ReadError::NotFound { .. })));
    let xattrs = |image: &Image, path: &str| -> Vec<String> {
        let inode = image.resolve(path.as_bytes(), FollowLast::Keep).unwrap();
        let mut names: Vec<_> =
            image.list_xattrs(&inode).unwrap().into_iter().map(|x| String::from_utf8(x.name).unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(xattrs(&merged, "/d"), ["trusted.overlay.opaque", "trusted.overlay.overlay.x", "user.a"]);
    // A whiteout is an empty file that says so, as overlayfs shows it.
    assert_eq!(xattrs(&merged, "/gone"), ["trusted.overlay.whiteout", "user.overlay.whiteout"]);
    assert!(xattrs(&stored, "/").contains(&"trusted.overlay.opaque".to_owned()));
    let dir = merged.resolve(b"/d", FollowLast::Keep).unwrap();
    assert_eq!(merged.get_xattr(&dir, b"trusted.overlay.opaque").unwrap(), Some(b"y".to_vec()));
    assert_eq!(merged.get_xattr(&dir, b"trusted.overlay.overlay.x").unwrap(), Some(b"z".to_vec()));
    assert_eq!(merged.get_xattr(&root, b"trusted.overlay.opaque").unwrap(), Some(b"x".to_vec()));
    assert_eq!(merged.get_xattr(&dir, b"user.a").unwrap(), Some(b"b".to_vec()));
}

#[test]
fn other_things_than_the_object_are_errors() {
    let (store, bytes) = (Store::new(), contents(3, 10_000));
    let (digest, path) = store.add(&bytes, Algorithm::Sha256);
    let image = store.open(&line("/f", bytes.len(), &digest), ObjectVerification::Once);
    let read = || read(&image, "/f");
    fs::remove_file(&path).unwrap();
    assert!(matches!(problem(read()), ObjectProblem::Missing));
    let text = read().unwrap_err().to_string();
    assert!(text.contains(&object_path(&digest)) && text.ends_with("is missing"), "{text}");
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    assert!(matches!(problem(read()), ObjectProblem::NoFile("a pipe")));
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(matches!(problem(read()), ObjectProblem::NoFile("a directory")));
    fs::remove_dir(&path).unwrap();
    fs::write(store.dir().join("elsewhere"), &bytes).unwrap();
    symlink("../elsewhere", &path).unwrap();
    assert!(matches!(problem(read()), ObjectProblem::NoFile("a symbolic link")));
    fs::remove_file(&path).unwrap();
    for len in [9_999, 10_001, 0] {
        fs::write(&path, contents(3, len)).unwrap();
        let found = problem(read());
        assert!(matches!(found, ObjectProblem::Size { expected: 10_000, found } if found == len as u64), "{found}");
    }
    let mut flipped = bytes.clone();
    flipped[9_000] ^= 1;
    fs::write(&path, &flipped).unwrap();
    assert!(matches!(problem(read()), ObjectProblem::Digest { expected, .. } if *expected == digest));
    let text = read().unwrap_err().to_string();
    assert!(text.contains(&digest.to_string()), "{text}");
    // A part without the wrong byte is refused, too.
    let inode = image.resolve(b"/f", FollowLast::Keep).unwrap();
    assert!(image.read_at(&inode, &mut [0; 10], 0).is_err());
    let unverified = store.open(&line("/f", bytes.len(), &digest), ObjectVerification::Never);
    assert_eq!(self::read(&unverified, "/f").unwrap(), flipped);
    fs::write(&path, &bytes).unwrap();
    assert_eq!(read().unwrap(), bytes, "an error must not stay");
    // The directory of an object may be no link either.
    let (dir, moved) = (path.parent().unwrap(), store.dir().join("moved"));
    fs::rename(dir, &moved).unwrap();
    symlink("moved", dir).unwrap();
    let image = store.open(&line("/f", bytes.len(), &digest), ObjectVerification::Once);
    assert!(matches!(problem(self::read(&image, "/f")), ObjectProblem::NoFile(_)));
}

#[test]
fn an_object_that_changes_is_verified_again() {
    let (store, bytes) = (Store::new(), contents(4, 5000));
    let (digest, path) = store.add(&bytes, Algorithm::Sha256);
    let image = store.open(&line("/f", bytes.len(), &digest), ObjectVerification::Once);
    assert_eq!(read(&image, "/f").unwrap(), bytes);
    change(&path, || fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap());
    assert_eq!(read(&image, "/f").unwrap(), bytes);
    change(&path, || fs::write(&path, contents(5, 5000)).unwrap());
    assert!(matches!(problem(read(&image, "/f")), ObjectProblem::Digest { .. }));
    change(&path, || fs::write(&path, &bytes[..4000]).unwrap());
    assert!(matches!(problem(read(&image, "/f")), ObjectProblem::Size { .. }));
    change(&path, || fs::write(&path, &bytes).unwrap());
    assert_eq!(read(&image, "/f").unwrap(), bytes);
}

#[test]
fn no_path_leads_out_of_a_store() {
    let store = Store::new();
    fs::write(store.dir().join("secret"), b"secret").unwrap();
    fs::create_dir(store.dir().join("aa")).unwrap();
    fs::create_dir(store.dir().join("aa/bb")).unwrap();
    fs::write(store.dir().join("aa/bb/secret"), b"secret").unwrap();
    for path in ["secret", "aa/../secret", "../secret", "aa/bb/secret", "aa/./bb", "/etc/passwd", "aa/.."] {
        let lines = format!("/f 6 100644 1 0 0 0 0.0 {path} - -\n");
        let image = store.open(&lines, ObjectVerification::Once);
        assert!(matches!(problem(read(&image, "/f")), ObjectProblem::Path), "{path}");
    }
    // Nothing at all leads to the contents.
    let image = store.open("/f 6 100644 1 0 0 0 0.0 - - -\n", ObjectVerification::Once);
    assert!(matches!(problem(read(&image, "/f")), ObjectProblem::Unnamed));
    // An object without a digest is believed.
    fs::write(store.dir().join("aa/object"), b"secret").unwrap();
    let image = store.open("/f 6 100644 1 0 0 0 0.0 aa/object - -\n", ObjectVerification::Once);
    assert_eq!(read(&image, "/f").unwrap(), b"secret");
}

#[test]
fn several_stores_and_repositories_are_searched() {
    let (first, second) = (Store::new(), Store::new());
    let (one, two) = (contents(6, 100), contents(7, 200));
    let (digest_one, _) = first.add(&one, Algorithm::Sha256);
    fs::create_dir(second.dir().join("objects")).unwrap();
    let digest_two = fsverity::digest(Algorithm::Sha256, &two);
    let path = second.dir().join("objects").join(object_path(&digest_two));
    fs::create_dir(path.parent().unwrap()).unwrap();
    fs::write(&path, &two).unwrap();
    let objects = Objects::open(&[second.dir(), first.dir()], ObjectVerification::Once).unwrap();
    let lines = line("/one", 100, &digest_one) + &line("/two", 200, &digest_two);
    let image = open(&lines, Some(objects));
    assert_eq!((read(&image, "/one").unwrap(), read(&image, "/two").unwrap()), (one, two));
    let missing = Objects::open(&[first.dir().join("nowhere")], ObjectVerification::Once);
    assert!(matches!(missing, Err(ReadError::Io { .. })));
}

#[test]
fn few_objects_are_open_at_a_time() {
    let (store, mut lines) = (Store::new(), String::new());
    for at in 0..600 {
        let bytes = format!("contents of file {at}");
        let (digest, _) = store.add(bytes.as_bytes(), Algorithm::Sha256);
        lines += &line(&format!("/f{at}"), bytes.len(), &digest);
    }
    let image = store.open(&lines, ObjectVerification::Once);
    for at in 0..600 {
        assert_eq!(read(&image, &format!("/f{at}")).unwrap(), format!("contents of file {at}").as_bytes());
    }
    let targets = fs::read_dir("/proc/self/fd").unwrap().filter_map(|fd| fs::read_link(fd.unwrap().path()).ok());
    let open = targets.filter(|target| target.starts_with(store.dir())).count();
    assert!((1..=300).contains(&open), "{open} descriptors");
}

#[test]
fn a_check_verifies_all_objects() {
    let (store, bytes) = (Store::new(), contents(8, 3000));
    let (digest, path) = store.add(&bytes, Algorithm::Sha256);
    let lines = line("/f", bytes.len(), &digest);
    let problems = |report: CheckReport| -> Vec<String> { report.problems.iter().map(ToString::to_string).collect() };
    let image = store.open(&lines, ObjectVerification::Once);
    let report = image.check(Threads::ONE).unwrap();
    assert_eq!((report.objects, report.problem_count), (1, 0), "{:?}", report.problems);
    change(&path, || fs::write(&path, contents(9, 3000)).unwrap());
    let found = problems(image.check(Threads::ONE).unwrap());
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("/f") && found[0].contains(&digest.to_string()), "{}", found[0]);
    assert_eq!(open(&lines, None).check(Threads::ONE).unwrap().problem_count, 0);
}

#[test]
fn objects_are_nothing_to_other_images() {
    let store = Store::new();
    let objects = Objects::open(&[store.dir()], ObjectVerification::Once).unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/xattrs.erofs");
    let plain = Image::open_path(&path, &[], &ImageOptions::default()).unwrap();
    let with_objects = Image::open_path(&path, &[], &ImageOptions::default().with_objects(objects)).unwrap();
    let all = |image: &Image| {
        let root = image.inode(image.root_nid()).unwrap();
        let list = image.walk(&root, b"").map(|entry| entry.unwrap());
        list.map(|entry| (image.list_xattrs(&entry.inode).unwrap(), entry)).collect::<Vec<_>>()
    };
    assert_eq!(all(&plain), all(&with_objects));
}
