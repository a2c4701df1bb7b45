//! A page about the space of an image: a treemap by directory, kinds of files, and what sharing has saved. It needs no
//! other file.

use super::treemap::{Area, squarified};
use crate::console::document::escape;
use crate::console::size::Human;
use kiln_read::{DirUsage, DiskUsage, Image, Inode, ReadError, TreeUsage, Usage};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::ControlFlow;

/// Levels of directories in the treemap.
const LEVELS: usize = 3;
/// Most rectangles in a directory, and the least length of a side.
const CHILDREN_MAX: usize = 60;
const SIDE_MIN: f64 = 3.0;
/// Most rows of a table.
const ROWS_MAX: usize = 40;
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 620.0;

const STYLE: &str = "\
:root{--ink:#1f2328;--dim:#656d76;--paper:#fff;--line:#d0d7de;--a:#ddf4ff;--b:#b6e3ff;--c:#80ccff}\
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--dim:#9198a1;--paper:#0d1117;--line:#3d444d;\
--a:#0c2d6b;--b:#0d419d;--c:#1158c7}}body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);\
background:var(--paper);max-width:1000px;margin:1rem auto;padding:0 1rem}svg{width:100%;height:auto}rect{\
stroke:var(--paper);stroke-width:1.5}.l0{fill:var(--a)}.l1{fill:var(--b)}.l2{fill:var(--c)}.own{\
fill:var(--line);opacity:.5}svg text{fill:var(--ink);font-size:13px;pointer-events:none}table{\
border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}td,th{padding:.2rem .6rem;\
border-bottom:1px solid var(--line);text-align:right}td:first-child,th:first-child{text-align:left;\
word-break:break-all}.scroll{overflow-x:auto}p{color:var(--dim)}";

/// A directory, with the sums of all files below it.
#[derive(Default)]
struct Directory {
    sums: TreeUsage,
    children: BTreeMap<String, Directory>,
}

/// Space of an image by directory and by kind of file.
#[derive(Default)]
pub struct Space {
    root: Directory,
    kinds: BTreeMap<String, TreeUsage>,
}

fn add(to: &mut TreeUsage, more: &TreeUsage) {
    to.files += more.files;
    to.apparent += more.apparent;
    to.on_disk += more.on_disk;
}

/// Returns the kind of a file by the end of its name: `.so` for `libc.so.6`.
fn kind(name: &str) -> String {
    let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let suffix = name.split_once('.').and_then(|(_, parts)| parts.rsplit('.').find(|part| !is_number(part)));
    match suffix {
        Some(part) if part.len() <= 8 && !name.starts_with('.') => format!(".{}", part.to_lowercase()),
        _ => "no suffix".into(),
    }
}

impl Space {
    /// Measures an image.
    pub fn measure(image: &Image, root: &Inode) -> Result<Self, ReadError> {
        let mut space = Self::default();
        let mut disk = DiskUsage::new(image);
        for entry in image.walk(root, b"") {
            let entry = entry?;
            if entry.inode.is_dir() {
                continue;
            }
            let mut nothing = |_: DirUsage<'_>| ControlFlow::Continue(());
            let sums = disk.measure(&entry.inode, &entry.path, &mut nothing)?;
            let path = String::from_utf8_lossy(&entry.path).into_owned();
            let mut names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
            let name = names.pop().unwrap_or_default();
            if entry.inode.is_file() {
                add(space.kinds.entry(kind(name)).or_default(), &sums);
            }
            let mut dir = &mut space.root;
            add(&mut dir.sums, &sums);
            for name in names.into_iter().take(LEVELS) {
                dir = dir.children.entry(name.to_owned()).or_default();
                add(&mut dir.sums, &sums);
            }
        }
        Ok(space)
    }

    /// Returns the page.
    pub fn page(&self, name: &str, image_len: u64, usage: &Usage) -> String {
        let mut out = String::new();
        let title = escape(name);
        let TreeUsage { files, apparent, on_disk } = self.root.sums;
        let _ = write!(
            out,
            "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" \
             content=\"width=device-width,initial-scale=1\"><title>{title}</title><style>{STYLE}</style>\
             <h1>{title}</h1><p>An image of {}: {files} files of {}, which take {}{}.</p>",
            Human(image_len),
            Human(apparent),
            Human(on_disk),
            percent(on_disk, apparent).map_or(String::new(), |percent| format!(" ({percent})")),
        );
        let _ = write!(
            out,
            "<h2>Directories</h2><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\"><title>Space by directory</title>"
        );
        let whole = Area { x: 0.0, y: 0.0, width: WIDTH, height: HEIGHT };
        self.root.draw(&mut out, "", 0, whole);
        out.push_str("</svg><p>Areas are bytes on disk. Point at a rectangle for its path.</p>");
        let mut rows = Vec::new();
        self.root.rows("", 0, &mut rows);
        table(&mut out, "directory", rows);
        out.push_str("<h2>Kinds of files</h2>");
        table(&mut out, "end of the name", self.kinds.iter().map(|(kind, sums)| (kind.clone(), *sums)).collect());
        let meta = &usage.metadata;
        let metadata =
            meta.superblock + meta.inodes + meta.xattrs + meta.shared_xattrs + meta.indexes + meta.directories;
        let _ = writeln!(
            out,
            "<h2>Sharing</h2><p>Equal data that is stored once saves {} of stored bytes; files that are packed \
             together, {} of their text. Metadata takes {}.</p></html>",
            Human(usage.data.saved()),
            Human(usage.fragments.saved()),
            Human(metadata),
        );
        out
    }
}

impl Directory {
    /// Returns the directories in it, the largest first.
    fn largest(&self) -> Vec<(&String, &Directory)> {
        let mut children: Vec<_> = self.children.iter().collect();
        children.sort_by_key(|(_, dir)| std::cmp::Reverse(dir.sums.on_disk));
        children.truncate(CHILDREN_MAX);
        children
    }

    /// Draws the directories in it.
    fn draw(&self, out: &mut String, path: &str, level: usize, area: Area) {
        let children = self.largest();
        let mut sizes: Vec<u64> = children.iter().map(|(_, dir)| dir.sums.on_disk).collect();
        // What is no directory keeps its space.
        let own = self.sums.on_disk.saturating_sub(sizes.iter().sum());
        let place = sizes.partition_point(|size| *size >= own);
        sizes.insert(place, own);
        let mut areas = squarified(&sizes, area);
        let Area { x, y, width, height } = areas.remove(place);
        if width >= SIDE_MIN && height >= SIDE_MIN {
            let _ = write!(
                out,
                "<rect class=\"own\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\">\
                 <title>files in {}/: {}</title></rect>",
                escape(path),
                Human(own),
            );
        }
        for ((name, dir), area) in children.into_iter().zip(areas) {
            if area.width < SIDE_MIN || area.height < SIDE_MIN {
                continue;
            }
            let path = format!("{path}/{name}");
            let Area { x, y, width, height } = area;
            let _ = write!(
                out,
                "<rect class=\"l{level}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\">\
                 <title>{}: {} in {} files</title></rect>",
                escape(&path),
                Human(dir.sums.on_disk),
                dir.sums.files,
            );
            let has_text = width > 8.0 * name.chars().count() as f64 + 8.0 && height > 20.0;
            if has_text {
                let _ = write!(out, "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>", x + 5.0, y + 15.0, escape(name));
            }
            if level + 1 < LEVELS {
                dir.draw(out, &path, level + 1, area.inside(3.0, if has_text { 20.0 } else { 3.0 }));
            }
        }
    }

    /// Adds the directories in it to the rows of a table.
    fn rows(&self, path: &str, level: usize, rows: &mut Vec<(String, TreeUsage)>) {
        for (name, dir) in &self.children {
            let path = format!("{path}/{name}");
            if level + 1 < LEVELS {
                dir.rows(&path, level + 1, rows);
            }
            rows.push((path, dir.sums));
        }
    }
}

/// Adds a table of the largest rows.
fn table(out: &mut String, head: &str, mut rows: Vec<(String, TreeUsage)>) {
    rows.sort_by(|(a, left), (b, right)| right.on_disk.cmp(&left.on_disk).then(a.cmp(b)));
    let _ = write!(out, "<div class=\"scroll\"><table><tr><th>{head}<th>files<th>size<th>on disk<th>of its size</tr>");
    for (name, TreeUsage { files, apparent, on_disk }) in rows.iter().take(ROWS_MAX) {
        let _ = write!(
            out,
            "<tr><td>{}<td>{files}<td>{}<td>{}<td>{}</tr>",
            escape(name),
            Human(*apparent),
            Human(*on_disk),
            percent(*on_disk, *apparent).unwrap_or_default(),
        );
    }
    out.push_str("</table></div>");
    if rows.len() > ROWS_MAX {
        let _ = write!(out, "<p>And {} more.</p>", rows.len() - ROWS_MAX);
    }
}

fn percent(part: u64, whole: u64) -> Option<String> {
    (whole > 0).then(|| format!("{:.0} %", part as f64 * 100.0 / whole as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_ends_of_names() {
        for (name, expected) in [
            ("libc.so.6", ".so"),
            ("a.TXT", ".txt"),
            ("README", "no suffix"),
            (".bashrc", "no suffix"),
            ("x.averylongsuffix", "no suffix"),
            ("archive.tar.gz", ".gz"),
            ("", "no suffix"),
        ] {
            assert_eq!(kind(name), expected, "{name}");
        }
    }
}
