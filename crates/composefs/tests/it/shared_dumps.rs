//! Dumps that follow from a seed, and that both `mkcomposefs` of composefs 1.0.8 and that of
//! composefs-rs take: short contents and targets, objects named by their digests, true link counts,
//! no device numbers on files. Some have what [`rows`](super::rows) tells of.

use kiln_tests::rng::Rng;
use std::fmt::Write;

/// A line of a dump.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Path as it is, not escaped.
    pub path: Vec<u8>,
    /// Path of the inode, if the line is another name of it.
    pub link: Option<Vec<u8>>,
    pub size: u64,
    pub mode: u32,
    pub nlink: u32,
    pub owner: (u32, u32),
    pub rdev: u32,
    pub mtime: &'static str,
    pub payload: String,
    pub content: String,
    pub digest: String,
    pub xattrs: Vec<(String, &'static str)>,
}

pub const WHITEOUT: u32 = 0o20640;
pub const DIRECTORY: u32 = 0o40755;

impl Line {
    /// Returns a line without data.
    pub fn new(path: &[u8], mode: u32) -> Self {
        Self {
            path: path.into(),
            link: None,
            size: 0,
            mode,
            nlink: 1,
            owner: (0, 0),
            rdev: 0,
            mtime: "0.0",
            payload: "-".into(),
            content: "-".into(),
            digest: "-".into(),
            xattrs: Vec::new(),
        }
    }

    pub fn is_directory(&self) -> bool {
        self.link.is_none() && self.mode >> 12 == 0o4
    }

    pub fn is_whiteout(&self) -> bool {
        self.link.is_none() && self.mode >> 12 == 0o2 && self.rdev == 0
    }

    /// Returns the path of the directory that has the name.
    pub fn parent(&self) -> &[u8] {
        &self.path[..self.path.iter().rposition(|byte| *byte == b'/').unwrap()]
    }

    /// Returns the components of the path, by which a walk is sorted.
    fn place(&self) -> Vec<&[u8]> {
        self.path.split(|byte| *byte == b'/').collect()
    }
}

/// Returns the text of a dump: names of other inodes stand last.
pub fn text(lines: &[Line]) -> String {
    let mut sorted: Vec<_> = lines.iter().collect();
    sorted.sort_by_key(|line| (line.link.is_some(), line.place()));
    let mut text = String::new();
    for line in sorted {
        let path = if line.path.is_empty() { "/".into() } else { escaped(&line.path) };
        let Line { size, mode, nlink, owner: (uid, gid), rdev, mtime, payload, content, digest, .. } = line;
        match &line.link {
            Some(target) => write!(text, "{path} 0 @120000 - - - - 0.0 {} - -", escaped(target)).unwrap(),
            None => {
                let meta = format!("{size} {mode:o} {nlink} {uid} {gid} {rdev} {mtime}");
                write!(text, "{path} {meta} {payload} {content} {digest}").unwrap();
                line.xattrs.iter().for_each(|(key, value)| write!(text, " {key}={value}").unwrap());
            }
        }
        text.push('\n');
    }
    text
}

fn escaped(path: &[u8]) -> String {
    let byte = |&byte: &u8| match byte {
        b'!'..=b'~' => char::from(byte).to_string(),
        _ => format!("\\x{byte:02x}"),
    };
    path.iter().map(byte).collect()
}

/// Moves each inode with several names to the first of them in a walk.
pub fn move_to_first_names(lines: &mut [Line]) {
    for inode in 0..lines.len() {
        let of_inode: Vec<usize> =
            (0..lines.len()).filter(|&at| at == inode || lines[at].link.as_ref() == Some(&lines[inode].path)).collect();
        let first = *of_inode.iter().min_by_key(|&&at| lines[at].place()).unwrap();
        if lines[inode].link.is_none() && first != inode {
            let path = std::mem::take(&mut lines[first].path);
            lines[first].path = std::mem::replace(&mut lines[inode].path, path.clone());
            of_inode.iter().filter(|&&at| at != inode).for_each(|&at| lines[at].link = Some(path.clone()));
        }
    }
}

/// Keys that mean something to composefs or overlayfs, and others.
const KEYS: [&str; 12] = [
    "security.selinux",
    "security.capability",
    "user.a",
    "trusted.overlay.overlay.x",
    "trusted.overlay.x",
    "trusted.overlay.whiteout",
    "trusted.overlaz",
    "trusted.x",
    "system.posix_acl_access",
    "system.posix_acl_default",
    "lustre.lov",
    "os2.x",
];

/// Marks of directories, which composefs sets itself on those with whiteouts.
pub const MARKS: [&str; 4] =
    ["trusted.overlay.opaque", "user.overlay.opaque", "trusted.overlay.whiteouts", "user.overlay.whiteouts"];

const SIZES: [u64; 9] = [1, 64, 4096, 4097, (1 << 32) - 1, 1 << 32, 1 << 43, 1016 << 43, 1 << 52];

/// Returns a dump, and with it what [`rows`](super::rows) tells of in one of three.
pub fn dump(seed: u64) -> Vec<Line> {
    let mut maker = Maker { rng: Rng::new(seed ^ 0xC0F5), digests: 0 };
    let mut lines = vec![Line { xattrs: maker.xattrs(), nlink: 2, ..Line::new(b"", DIRECTORY) }];
    let has_whiteouts = maker.rng.below(3) == 0;
    for number in 0..maker.rng.below(120) {
        let dirs: Vec<_> = lines.iter().filter(|line| line.is_directory()).collect();
        let parent = maker.rng.pick(&dirs).path.clone();
        let path = [&parent[..], b"/", &maker.name(number)].concat();
        let line = match maker.rng.below(12) {
            0 | 1 => maker.line(&path, DIRECTORY),
            2 if has_whiteouts => maker.line(&path, WHITEOUT),
            _ => maker.file(&path),
        };
        lines.push(line);
    }
    maker.add_links(&mut lines);
    move_to_first_names(&mut lines);
    maker.add_oddities(&mut lines);
    lines
}

struct Maker {
    rng: Rng,
    digests: u64,
}

impl Maker {
    /// Returns a name that no other number has.
    fn name(&mut self, number: u64) -> Vec<u8> {
        let odd = *self.rng.pick(&[&b""[..], b"", b".", b"-", b"..", b"\xff", b" ", b"~", b"=", b"..a"]);
        let fill = if self.rng.below(4) == 0 { "n".repeat(self.rng.below(240) as usize) } else { String::new() };
        match self.rng.below(8) {
            // Names of stubs.
            0 => format!("{number:02x}").into_bytes(),
            _ => [odd, format!("{fill}_{number}").as_bytes()].concat(),
        }
    }

    fn line(&mut self, path: &[u8], mode: u32) -> Line {
        let owner = [(); 2].map(|()| *self.rng.pick(&[0, 0, 0, 1000, 65535, 65536]));
        let mtime = *self.rng.pick(&["5.0", "5.0", "5.7", "6.0", "4294967300.999999999"]);
        Line { owner: owner.into(), mtime, xattrs: self.xattrs(), ..Line::new(path, mode) }
    }

    fn file(&mut self, path: &[u8]) -> Line {
        match self.rng.below(10) {
            0 => {
                let near = *self.rng.pick(&[1, 30, 1000, 1023]);
                let len = 1 + self.rng.below(near);
                Line { size: len, payload: "t".repeat(len as usize), ..self.line(path, 0o120_777) }
            }
            1 => {
                let (mode, rdev) = *self.rng.pick(&[(0o10600, 0), (0o140_644, 0), (0o60600, 259), (0o20666, 1)]);
                Line { rdev, ..self.line(path, mode) }
            }
            2 => self.line(path, 0o100_600),
            3..=5 => {
                let near = *self.rng.pick(&[64, 64, 511]);
                let len = 1 + self.rng.below(near);
                let content = (0..len).map(|at| if at % 7 == 3 { "\\x00" } else { "c" }).collect();
                Line { size: len, content, ..self.line(path, 0o100_644) }
            }
            _ => {
                self.digests += 1;
                // Some files are equal.
                let digest = format!("{:02x}", self.digests % 50).repeat(32);
                let payload = format!("{}/{}", &digest[..2], &digest[2..]);
                let size = *self.rng.pick(&SIZES);
                match self.rng.below(8) {
                    0 => Line { size, ..self.line(path, 0o104_755) },
                    _ => Line { size, payload, digest, ..self.line(path, 0o100_755) },
                }
            }
        }
    }

    fn xattrs(&mut self) -> Vec<(String, &'static str)> {
        if self.rng.below(2) == 0 {
            return Vec::new();
        }
        let mut xattrs = Vec::new();
        for _ in 0..self.rng.below(4) {
            let (key, value) = (*self.rng.pick(&KEYS), *self.rng.pick(&["", "a", "a", "b", "ab\\x00", "-"]));
            xattrs.retain(|(other, _)| other != key);
            xattrs.push((key.to_owned(), value));
        }
        xattrs
    }

    /// Adds names to some files.
    fn add_links(&mut self, lines: &mut Vec<Line>) {
        let is_file = |at: &usize| !lines[*at].is_directory() && !lines[*at].is_whiteout();
        let files: Vec<usize> = (0..lines.len()).filter(is_file).collect();
        let dirs: Vec<Vec<u8>> = lines.iter().filter(|line| line.is_directory()).map(|dir| dir.path.clone()).collect();
        if files.is_empty() {
            return;
        }
        for number in 0..self.rng.below(8) {
            let target = *self.rng.pick(&files);
            let path = [&self.rng.pick(&dirs)[..], b"/", &self.name(1000 + number)].concat();
            lines[target].nlink += 1;
            lines.push(Line { link: Some(lines[target].path.clone()), ..Line::new(&path, 0) });
        }
    }

    /// Adds what the two programs treat differently.
    fn add_oddities(&mut self, lines: &mut Vec<Line>) {
        let links: Vec<usize> = (0..lines.len()).filter(|&at| lines[at].link.is_some()).collect();
        if self.rng.below(4) == 0 && !links.is_empty() {
            // The inode moves to one of its later names.
            let link = *self.rng.pick(&links);
            let old = lines[link].link.clone().unwrap();
            let path = lines[link].path.clone();
            for line in lines.iter_mut() {
                match line.path == old {
                    true => line.path = path.clone(),
                    false if line.path == path => (line.path, line.link) = (old.clone(), Some(path.clone())),
                    false if line.link.as_ref() == Some(&old) => line.link = Some(path.clone()),
                    false => {}
                }
            }
        }
        if self.rng.below(8) == 0 {
            let count = 120 + self.rng.below(40);
            for _ in 0..2 {
                let at = self.rng.below(lines.len() as u64) as usize;
                let shared = (0..count).map(|idx| (format!("user.shared{idx}"), "s"));
                if lines[at].link.is_none() && !lines[at].xattrs.iter().any(|(key, _)| key.contains("shared")) {
                    lines[at].xattrs.extend(shared);
                }
            }
        }
        let whiteouts: Vec<usize> = (0..lines.len()).filter(|&at| lines[at].is_whiteout()).collect();
        if whiteouts.is_empty() {
            return;
        }
        if self.rng.below(3) == 0 {
            let parent = lines[*self.rng.pick(&whiteouts)].parent().to_vec();
            let (key, value) = (*self.rng.pick(&MARKS), *self.rng.pick(&["", "x", "y", "long"]));
            lines.iter_mut().filter(|line| line.path == parent).for_each(|line| line.xattrs.push((key.into(), value)));
        }
        if self.rng.below(3) == 0 {
            lines[*self.rng.pick(&whiteouts)].size = 1 + self.rng.below(5000);
        }
        if self.rng.below(3) == 0 && !lines.iter().any(|line| line.path == b"/fe") {
            let Line { owner, mtime, .. } = lines[0];
            lines.push(Line { owner, mtime, ..Line::new(b"/fe", 0o20644) });
        }
    }
}
