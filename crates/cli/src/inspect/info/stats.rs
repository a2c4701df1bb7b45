//! Statistics as text and as JSON.

use crate::console::report::Out;
use crate::console::size::Human;
use crate::console::text;
use kiln_read::{Count, ExtentCount, Histogram, Sharing, Usage};
use serde::Serialize;
use std::io::{self, Write};

/// Statistics of an image's contents.
#[derive(Serialize)]
pub struct StatsJson {
    types: Vec<TypeJson>,
    hard_links: u64,
    layouts: Vec<LayoutJson>,
    sizes: Vec<BucketJson>,
    extents: Vec<ExtentsJson>,
    pcluster_lens: Vec<BucketJson>,
    extent_lens: Vec<BucketJson>,
    in_place: InPlaceJson,
    block_reads: Vec<BlockReadsJson>,
    data: SharingJson,
    fragments: SharingJson,
    padding: u64,
    metadata: MetadataJson,
}

#[derive(Serialize)]
struct TypeJson {
    #[serde(rename = "type")]
    name: &'static str,
    count: u64,
    bytes: u64,
}

#[derive(Serialize)]
struct LayoutJson {
    layout: &'static str,
    count: u64,
    bytes: u64,
}

/// Values from `from` to just before its double.
#[derive(Serialize)]
struct BucketJson {
    from: u64,
    count: u64,
    bytes: u64,
}

#[derive(Serialize)]
struct ExtentsJson {
    stored_as: &'static str,
    count: u64,
    logical: u64,
    stored: u64,
}

#[derive(Serialize)]
struct InPlaceJson {
    extents: u64,
    fit: u64,
}

#[derive(Serialize)]
struct BlockReadsJson {
    pclusters: u64,
    blocks: u64,
}

#[derive(Serialize)]
struct SharingJson {
    named: u64,
    stored: u64,
    saved: u64,
}

#[derive(Serialize)]
struct MetadataJson {
    superblock: u64,
    inodes: u64,
    xattrs: u64,
    shared_xattrs: u64,
    indexes: u64,
    inline: u64,
    directories: u64,
}

impl StatsJson {
    pub fn new(usage: &Usage) -> Self {
        let buckets = |histogram: &Histogram| {
            let bucket = |(from, Count { count, bytes })| BucketJson { from, count, bytes };
            histogram.buckets().map(bucket).collect()
        };
        let sharing = |s: &Sharing| SharingJson { named: s.named, stored: s.stored, saved: s.saved() };
        let types = usage.types.iter().filter(|(_, count)| count.count > 0);
        let layouts = usage.layouts.iter().filter(|(_, count)| count.count > 0);
        let extents = usage.extents.iter().filter(|(_, count)| count.count > 0);
        let of_type = |(key, Count { count, bytes }): &(_, _)| TypeJson {
            name: text::file_type(*key),
            count: *count,
            bytes: *bytes,
        };
        let of_layout = |(key, Count { count, bytes }): &(kiln_format::inode::DataLayout, _)| LayoutJson {
            layout: key.name(),
            count: *count,
            bytes: *bytes,
        };
        let of_kind = |(key, ExtentCount { count, logical, stored }): &(kiln_read::StoredAs, _)| ExtentsJson {
            stored_as: key.name(),
            count: *count,
            logical: *logical,
            stored: *stored,
        };
        let block_reads = |(&pclusters, &blocks): (&u64, &u64)| BlockReadsJson { pclusters, blocks };
        let metadata = &usage.metadata;
        Self {
            types: types.map(of_type).collect(),
            hard_links: usage.hard_links,
            layouts: layouts.map(of_layout).collect(),
            sizes: buckets(&usage.sizes),
            extents: extents.map(of_kind).collect(),
            pcluster_lens: buckets(&usage.pcluster_lens),
            extent_lens: buckets(&usage.extent_lens),
            in_place: InPlaceJson { extents: usage.in_place.extents, fit: usage.in_place.fit },
            block_reads: usage.block_reads.iter().map(block_reads).collect(),
            data: sharing(&usage.data),
            fragments: sharing(&usage.fragments),
            padding: usage.padding,
            metadata: MetadataJson {
                superblock: metadata.superblock,
                inodes: metadata.inodes,
                xattrs: metadata.xattrs,
                shared_xattrs: metadata.shared_xattrs,
                indexes: metadata.indexes,
                inline: metadata.inline,
                directories: metadata.directories,
            },
        }
    }

    pub fn print(&self, out: &mut Out) -> io::Result<()> {
        self.print_files(out)?;
        self.print_extents(out)?;
        let rows = [
            ("Data", self.data.stored),
            ("  saved by sharing", self.data.saved),
            ("Fragments (decoded)", self.fragments.stored),
            ("  saved by sharing", self.fragments.saved),
            ("Padding", self.padding),
            ("Superblock", self.metadata.superblock),
            ("Inodes", self.metadata.inodes),
            ("Xattrs", self.metadata.xattrs),
            ("Shared xattrs", self.metadata.shared_xattrs),
            ("Indexes", self.metadata.indexes),
            ("Inline data", self.metadata.inline),
            ("Directories", self.metadata.directories),
        ];
        writeln!(out, "\n{:<28} {:>14}", "Space", "bytes")?;
        for (name, bytes) in rows {
            writeln!(out, "  {name:<26} {bytes:>14}  {}", Human(bytes))?;
        }
        Ok(())
    }

    fn print_files(&self, out: &mut Out) -> io::Result<()> {
        writeln!(out, "\n{:<28} {:>10} {:>14}", "Files", "count", "bytes")?;
        for TypeJson { name, count, bytes } in &self.types {
            writeln!(out, "  {name:<26} {count:>10} {bytes:>14}  {}", Human(*bytes))?;
        }
        writeln!(out, "  {:<26} {:>10}", "hard link", self.hard_links)?;
        writeln!(out, "\n{:<28} {:>10} {:>14}", "Layouts", "count", "bytes")?;
        for LayoutJson { layout, count, bytes } in &self.layouts {
            writeln!(out, "  {layout:<26} {count:>10} {bytes:>14}  {}", Human(*bytes))?;
        }
        print_buckets(out, "File sizes", &self.sizes)
    }

    fn print_extents(&self, out: &mut Out) -> io::Result<()> {
        writeln!(out, "\n{:<28} {:>10} {:>14} {:>14} {:>7}", "Extents", "count", "bytes", "stored", "ratio")?;
        for ExtentsJson { stored_as, count, logical, stored } in &self.extents {
            let ratio = if *stored > 0 { format!("{:.2}", *logical as f64 / *stored as f64) } else { "-".into() };
            writeln!(out, "  {stored_as:<26} {count:>10} {logical:>14} {stored:>14} {ratio:>7}")?;
        }
        print_buckets(out, "Compressed extents", &self.extent_lens)?;
        print_buckets(out, "Their pclusters", &self.pcluster_lens)?;
        self.print_reads(out)
    }

    fn print_reads(&self, out: &mut Out) -> io::Result<()> {
        let InPlaceJson { extents, fit } = self.in_place;
        if extents > 0 {
            writeln!(out, "\n{:<28} {:>10} {:>14}", "LZ4 extents", "count", "share")?;
            writeln!(out, "  {:<26} {fit:>10} {:>14}", "decoded in place", share(fit, extents))?;
            writeln!(out, "  {:<26} {:>10} {:>14}", "not", extents - fit, share(extents - fit, extents))?;
        }
        let all: u64 = self.block_reads.iter().map(|row| row.blocks).sum();
        if all > 0 {
            writeln!(out, "\n{:<28} {:>10} {:>14}", "Reads of one block", "count", "share")?;
        }
        for BlockReadsJson { pclusters, blocks } in &self.block_reads {
            let what = if *pclusters == 1 { "pcluster" } else { "pclusters" };
            let name = format!("from {pclusters} {what}");
            writeln!(out, "  {name:<26} {blocks:>10} {:>14}", share(*blocks, all))?;
        }
        Ok(())
    }
}

fn share(part: u64, of: u64) -> String {
    format!("{:.2} %", 100.0 * part as f64 / of as f64)
}

/// Prints a histogram, or nothing if it is empty.
fn print_buckets(out: &mut Out, title: &str, buckets: &[BucketJson]) -> io::Result<()> {
    if buckets.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{title:<28} {:>10} {:>14}", "count", "bytes")?;
    for BucketJson { from, count, bytes } in buckets {
        let range = match from {
            0 => "empty".into(),
            _ => format!("from {}", Human(*from)),
        };
        writeln!(out, "  {range:<26} {count:>10} {bytes:>14}  {}", Human(*bytes))?;
    }
    Ok(())
}
