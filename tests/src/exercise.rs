//! Every request that a reader accepts, for an untrusted image.
//!
//! A call may fail, but must not panic. In an image without problems, answers must not contradict
//! each other: bytes read twice, or in other pieces, are equal. Requests are limited, because a
//! damaged size may be anything.

use kiln_format::Nid;
use kiln_format::inode::FileType;
use kiln_read::{
    DirEntries, DiskUsage, FileRange, FileRangeMut, FollowLast, Image, Inode, ReadError, ScanFilter, SeekWhat, Threads,
    WalkEntry,
};
use std::ops::ControlFlow;

/// Limits of the requests.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Number of names visited.
    pub entries: usize,
    /// Number of bytes read at the start of each file.
    pub file_bytes: u64,
    /// Number of extents examined per file.
    pub extents: usize,
}

impl Default for Limits {
    /// Returns limits that cover undamaged golden images.
    fn default() -> Self {
        Self { entries: 2000, file_bytes: 256 << 10, extents: 500 }
    }
}

/// Result of the requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Number of calls, and of extents that a check decoded.
    pub calls: u64,
    /// Number of calls that found damage.
    pub errors: u64,
    /// Number of problems that a check reported.
    pub problems: u64,
    /// Inode of which two reads gave different bytes.
    contradiction: Option<Nid>,
}

impl Outcome {
    fn count<T>(&mut self, result: Result<T, ReadError>) -> Option<T> {
        self.calls += 1;
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                assert!(!matches!(error, ReadError::Internal { .. }), "{error}");
                assert!(!error.to_string().is_empty() && error.errno() > 0);
                // A request for the wrong type of file says nothing about the image.
                let at_fault =
                    matches!(error, ReadError::Corrupt { .. } | ReadError::Unsupported { .. } | ReadError::Io { .. });
                self.errors += u64::from(at_fault);
                None
            }
        }
    }
}

/// Makes all requests.
///
/// # Panics
/// If answers contradict each other, or an error is not due to the image.
pub fn exercise(image: &Image, limits: &Limits) -> Outcome {
    let mut out = Outcome::default();
    if let Some(root) = out.count(image.inode(image.root_nid())) {
        tree(image, &root, limits, &mut out);
    }
    for nid in [image.superblock().packed_nid, image.superblock().metabox_nid].into_iter().flatten() {
        if let Some(inode) = out.count(image.inode(nid)) {
            contents(image, &inode, limits, &mut out);
        }
    }
    whole_image(image, &mut out);
    out
}

/// Makes the requests that cover the whole image regardless of limits.
fn whole_image(image: &Image, out: &mut Outcome) {
    out.count(image.usage(Threads::ONE));
    if let Ok(root) = image.inode(image.root_nid()) {
        let mut dirs = 0;
        let measured = DiskUsage::new(image).measure(&root, b"", &mut |_| {
            dirs += 1;
            ControlFlow::Continue(())
        });
        assert!(out.count(measured).is_none() || dirs > 0);
    }
    if let Ok(root) = image.inode(image.root_nid())
        && let Some(table) = out.count(image.scan(&root, &ScanFilter::all(), Threads::at_least_one(2)).table())
    {
        assert!((0..table.len()).all(|row| !table.path(row).is_empty() && table.modes[row] != 0));
        out.count(table.positions(image, Threads::ONE));
    }
    let report = match image.check(Threads::ONE) {
        Err(ReadError::MissingDevices { .. }) => return,
        report => report.expect("memory does not fail"),
    };
    out.problems = report.problem_count;
    // An index can give one extent for a byte when it is entered there, and another one when it is
    // walked. Linux and lookups here do not notice, but a check must.
    assert!(
        out.problems > 0 || out.contradiction.is_none(),
        "different bytes in {:?} of a good image",
        out.contradiction
    );
    out.calls += report.extents;
    report.problems.iter().for_each(|problem| assert!(!problem.to_string().is_empty()));
}

fn tree(image: &Image, root: &Inode, limits: &Limits, out: &mut Outcome) {
    for (nth, entry) in image.walk(root, b"").take(limits.entries).enumerate() {
        let Some(entry) = out.count(entry) else { continue };
        inode(image, &entry, limits, out);
        // Resolving a path costs its depth.
        if nth % 8 == 0 || entry.inode.meta.file_type == FileType::Symlink {
            out.count(image.resolve(&entry.path, FollowLast::Keep));
            out.count(image.resolve(&entry.path, FollowLast::Follow));
            out.count(image.resolve(&[&entry.path, &b"/../x"[..]].concat(), FollowLast::Follow));
        }
    }
}

fn inode(image: &Image, entry: &WalkEntry, limits: &Limits, out: &mut Outcome) {
    let inode = &entry.inode;
    attributes(image, inode, out);
    let _ = (image.st_ino(inode.nid), inode.space(), inode.meta.rdev(), inode.meta.mode());
    match inode.meta.file_type {
        FileType::Directory => directory(image, inode, limits, out),
        FileType::Symlink => {
            let target = out.count(image.read_link(inode));
            assert!(target.is_none_or(|target| !target.contains(&0)));
        }
        _ => {}
    }
    contents(image, inode, limits, out);
}

fn attributes(image: &Image, inode: &Inode, out: &mut Outcome) {
    for xattr in out.count(image.list_xattrs(inode)).into_iter().flatten().take(100) {
        // A filter may hide the attribute, and another one may come first, but the call ends.
        out.count(image.get_xattr(inode, &xattr.name));
    }
    out.count(image.get_xattr(inode, b"user.absent"));
}

fn directory(image: &Image, dir: &Inode, limits: &Limits, out: &mut Outcome) {
    let mut names = Vec::new();
    let list = |from: u64, names: &mut Vec<Vec<u8>>| {
        let before = names.len();
        image.server().read_dir(dir, from, &mut |entry, behind| {
            assert!(behind > from && (1..=255).contains(&entry.name.len()));
            assert!(!entry.name.contains(&b'/') && !entry.name.contains(&0));
            names.push(entry.name);
            if names.len() - before < limits.entries { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
    };
    out.count(list(0, &mut names));
    let listed = out.count(DirEntries::new(image, dir).take(limits.entries).map(|entry| Ok(entry?.name)).collect());
    let is_listed =
        |listed: Vec<Vec<u8>>| listed.iter().all(|name| names.len() >= limits.entries || names.contains(name));
    assert!(listed.is_none_or(is_listed), "names that another listing does not have");
    // Positions that no listing returned.
    for from in [7, dir.meta.size / 2, dir.meta.size, u64::MAX] {
        out.count(list(from, &mut Vec::new()));
    }
    for name in names.iter().step_by(1 + names.len() / 16) {
        out.count(image.lookup(dir, name));
    }
    out.count(image.lookup(dir, b"\xFF absent"));
}

fn contents(image: &Image, inode: &Inode, limits: &Limits, out: &mut Outcome) {
    extents(image, inode, limits, out);
    explanations(image, inode, limits, out);
    for from in [0, inode.meta.size / 3] {
        for what in [SeekWhat::Hole, SeekWhat::Data] {
            let found = out.count(image.seek(inode, from, what)).flatten();
            assert!(found.is_none_or(|off| (from..=inode.meta.size).contains(&off)));
        }
    }
    reads(image, inode, limits, out);
}

fn extents(image: &Image, inode: &Inode, limits: &Limits, out: &mut Outcome) {
    let size = inode.meta.size;
    let mut off = 0;
    for _ in 0..limits.extents {
        let Some(extent) = out.count(image.extent_at(inode, off)) else { break };
        if off >= size {
            assert_eq!(extent.llen, 0);
            break;
        }
        assert!(extent.la <= off && off < extent.end() && extent.end() <= size, "{extent:?} at {off} of {size}");
        off = extent.end();
    }
    for off in [size / 2, size.saturating_sub(1), size, u64::MAX] {
        out.count(image.extent_at(inode, off));
    }
}

fn explanations(image: &Image, inode: &Inode, limits: &Limits, out: &mut Outcome) {
    let size = inode.meta.size;
    for start in [0, size / 2, size.saturating_sub(3000)] {
        let range = start..start.saturating_add(limits.file_bytes);
        if let Some(explanation) = out.count(image.explain(inode, range)) {
            out.count(explanation.total());
        }
    }
    for extent in image.extents(inode).take(limits.extents) {
        out.count(extent);
    }
}

fn reads(image: &Image, inode: &Inode, limits: &Limits, out: &mut Outcome) {
    let size = inode.meta.size;
    // A claimed size may be wrong, so memory is limited.
    let mut front = vec![0x55; size.min(limits.file_bytes) as usize];
    let front_len = out.count(image.read_at(inode, &mut front, 0));
    assert!(front_len.is_none_or(|len| len == front.len()));
    let mut piece = vec![0xAA; 5000];
    for (off, len) in
        [(0, 1), (0, 700), (1, 511), (4000, 5000), (70_001, 3000), (size / 2, 64), (size - size.min(64), 99)]
    {
        let Some(len) = out.count(image.read_at(inode, &mut piece[..len], off)) else { continue };
        let whole = front_len.and_then(|_| front.get(off as usize..off as usize + len));
        if whole.is_some_and(|whole| whole != &piece[..len]) {
            out.contradiction = Some(inode.nid);
        }
    }
    assert_eq!(out.count(image.read_at(inode, &mut piece, u64::MAX)).unwrap_or(0), 0);
    let owned = out.count(image.read_bytes(inode, 0..front.len() as u64));
    let mut batch = vec![0x33; front.len()];
    let mut batch_reads = [
        FileRangeMut { inode: *inode, off: 0, buf: &mut batch },
        FileRangeMut { inode: *inode, off: size / 2, buf: &mut piece },
    ];
    let mut lens = image.read_many_into(&mut batch_reads, Threads::ONE).into_iter().map(|len| out.count(len));
    let batch_len = lens.next().flatten();
    assert_eq!(lens.count(), 1);
    let differs = owned.is_some_and(|owned| owned[..] != front[..]) || (batch_len.is_some() && batch != front);
    if front_len.is_some() && differs {
        out.contradiction = Some(inode.nid);
    }
    out.count(image.position(inode));
    out.count(image.prefetch(&[FileRange { inode: *inode, range: 0..limits.file_bytes }]).map_err(|(_, error)| error));
}
