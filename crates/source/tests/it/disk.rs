//! Partitions of disks as sources, with tables made here and by sfdisk.

use crate::common::GOING;
use crate::tar::records::Archive;
use kiln_read::MemorySource;
use kiln_source::disk::{Partition, PartitionChoice, partitions};
use kiln_source::{ScanOptions, SourceError, SourceOptions, open};
use kiln_tests::temp::TempDir;
use kiln_tests::without;
use kiln_tree::Tree;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

const SECTOR: usize = 512;
const SECTORS: usize = 200;

/// Partitions: number, label, first sector, sectors.
type Parts<'p> = &'p [(u32, &'p str, u64, u64)];

fn crc(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

/// Returns a disk with a GPT and sectors of `sector` bytes.
fn gpt(sector: usize, parts: Parts<'_>) -> Vec<u8> {
    let mut disk = vec![0; SECTORS * sector];
    let mut entries = vec![0; 8 * 128];
    for &(number, label, first, count) in parts {
        let entry = &mut entries[(number as usize - 1) * 128..][..128];
        entry[..16].fill(number as u8);
        entry[32..40].copy_from_slice(&first.to_le_bytes());
        entry[40..48].copy_from_slice(&(first + count - 1).to_le_bytes());
        let units = label.encode_utf16().flat_map(u16::to_le_bytes);
        entry[56..].iter_mut().zip(units).for_each(|(to, byte)| *to = byte);
    }
    let last = SECTORS as u64 - 1;
    for (own, other, table) in [(1, last, 2), (last, 1, last - 4)] {
        let mut header = [0; 92];
        header[..8].copy_from_slice(b"EFI PART");
        header[8..16].copy_from_slice(&[0, 0, 1, 0, 92, 0, 0, 0]);
        for (at, number) in [(24, own), (32, other), (40, 8), (48, last - 8), (72, table)] {
            header[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        for (at, number) in [(80, 8), (84, 128), (88, crc(&entries))] {
            header[at..at + 4].copy_from_slice(&number.to_le_bytes());
        }
        let own_crc = crc(&header);
        header[16..20].copy_from_slice(&own_crc.to_le_bytes());
        disk[own as usize * sector..][..92].copy_from_slice(&header);
        disk[table as usize * sector..][..entries.len()].copy_from_slice(&entries);
    }
    mbr_entries(&mut disk, 0, &[(0xEE, 1, last as u32)]);
    disk
}

/// Writes entries (type, first sector, sectors) to the table in the sector `at`.
fn mbr_entries(disk: &mut [u8], at: usize, entries: &[(u8, u32, u32)]) {
    let sector = &mut disk[at * SECTOR..][..SECTOR];
    sector[510..].copy_from_slice(&[0x55, 0xAA]);
    for (idx, &(kind, first, count)) in entries.iter().enumerate() {
        let entry = &mut sector[446 + 16 * idx..][..16];
        entry[4] = kind;
        entry[8..12].copy_from_slice(&first.to_le_bytes());
        entry[12..].copy_from_slice(&count.to_le_bytes());
    }
}

/// Returns a disk with partitions 1 and 3, and an extended one with two others.
fn mbr() -> Vec<u8> {
    let mut disk = vec![0; SECTORS * SECTOR];
    mbr_entries(&mut disk, 0, &[(0x83, 4, 20), (0x05, 60, 100), (0x0C, 30, 20)]);
    mbr_entries(&mut disk, 60, &[(0x83, 2, 20), (0x05, 40, 40)]);
    mbr_entries(&mut disk, 100, &[(0x83, 2, 20)]);
    disk
}

fn table(disk: &[u8]) -> Result<Option<Vec<Partition>>, String> {
    partitions(&MemorySource::new(disk.to_vec())).map_err(|error| error.to_string())
}

/// Returns the partitions: number, label, first sector, number of sectors.
fn places(disk: &[u8], sector: usize) -> Vec<(u32, String, u64, u64)> {
    let sector = sector as u64;
    let place =
        |one: Partition| (one.number, one.label, one.range.start / sector, (one.range.end - one.range.start) / sector);
    table(disk).unwrap().unwrap().into_iter().map(place).collect()
}

fn owned(parts: Parts<'_>) -> Vec<(u32, String, u64, u64)> {
    parts.iter().map(|&(number, label, first, count)| (number, label.to_owned(), first, count)).collect()
}

/// Returns the tree in the partition `choice`.
fn scan(disk: &[u8], choice: &str) -> Result<Tree, SourceError> {
    let dir = TempDir::in_memory("disk").unwrap();
    fs::write(dir.join("disk"), disk).unwrap();
    let options = SourceOptions { partition: Some(choice.parse().unwrap()), ..SourceOptions::default() };
    open(&dir.join("disk"), &options)?.scan(&ScanOptions::new(&GOING)).map(|scan| scan.tree)
}

fn message(disk: &[u8], choice: &str) -> String {
    scan(disk, choice).map(drop).unwrap_err().to_string()
}

const PARTS: Parts<'static> = &[(1, "EFI", 10, 20), (2, "root", 40, 50), (5, "röot", 100, 1)];

#[test]
fn tables_are_read() {
    for sector in [512, 4096] {
        let disk = gpt(sector, PARTS);
        assert_eq!(places(&disk, sector), owned(PARTS));
        // Either table alone is enough.
        for at in [sector + 40, 2 * sector + 60, (SECTORS - 1) * sector + 40, (SECTORS - 5) * sector + 60] {
            let mut damaged = disk.clone();
            damaged[at] ^= 1;
            assert_eq!(places(&damaged, sector), owned(PARTS), "damaged at {at}");
        }
    }
    assert_eq!(places(&mbr(), SECTOR), owned(&[(1, "", 4, 20), (3, "", 30, 20), (5, "", 62, 20), (6, "", 102, 20)]));
}

#[test]
fn remains_of_a_gpt_are_ignored_beside_an_mbr() {
    let mut disk = gpt(SECTOR, PARTS);
    disk[446..510].fill(0);
    mbr_entries(&mut disk, 0, &[(0x83, 4, 20)]);
    assert_eq!(places(&disk, SECTOR), owned(&[(1, "", 4, 20)]));
    // A missing first sector does not matter.
    disk[..SECTOR].fill(0);
    assert_eq!(places(&disk, SECTOR), owned(PARTS));
}

#[test]
fn damaged_tables_are_reported() {
    let disk = gpt(512, PARTS);
    let cases = [
        (vec![(512 + 40, 1), (SECTORS * 512 - 512 + 40, 1)], "the GPT at byte 512: HeaderCRC32 = "),
        (vec![(1024 + 60, 1), (SECTORS * 512 - 512 + 40, 1)], "PartitionEntryArrayCRC32 = "),
        (vec![(512 + 13, 9), (SECTORS * 512 - 512 + 40, 1)], "HeaderSize = 2396"),
        (vec![(512, 1), (SECTORS * 512 - 512, 1)], "its MBR is that of a disk with a GPT"),
    ];
    for (changes, expected) in cases {
        let mut damaged = disk.clone();
        changes.iter().for_each(|&(at, bits)| damaged[at] ^= bits);
        let error = table(&damaged).unwrap_err();
        assert!(error.contains(expected), "{expected}: {error}");
        assert!(message(&damaged, "1").contains(expected));
    }
    // A chain that leads back to itself, and one that leads nowhere.
    let mut endless = mbr();
    mbr_entries(&mut endless, 100, &[(0x83, 2, 20), (0x05, 40, 40)]);
    assert!(table(&endless).unwrap_err().contains("a chain of more than 256 tables"));
    let mut lost = mbr();
    mbr_entries(&mut lost, 100, &[(0x83, 2, 20), (0x05, u32::MAX, 40)]);
    assert!(table(&lost).unwrap_err().contains("no table of an extended partition at byte"));
    for other in [vec![], vec![0; 100], vec![0; 5000], Archive::default().member("f", b'0', b"x").end()] {
        assert_eq!(table(&other).unwrap(), None);
    }
}

#[test]
fn a_partition_is_a_source() {
    let archive = Archive::default().member("in-partition", b'0', b"x").end();
    let has_file = |tree: Tree| tree.find([&b"in-partition"[..]]).is_some();
    for (sector, mut disk, first, choices) in [
        (512, gpt(512, PARTS), 40, &["2", "root"][..]),
        (4096, gpt(4096, PARTS), 100, &["5", "röot"]),
        (512, mbr(), 62, &["5"]),
    ] {
        disk[first * sector..][..archive.len()].copy_from_slice(&archive);
        // Bytes after a partition do not belong to it.
        for choice in choices {
            assert!(has_file(scan(&disk, choice).unwrap()), "{choice}");
            assert!(has_file(scan(&zstd::encode_all(&*disk, 1).unwrap(), choice).unwrap()), "{choice}, compressed");
        }
    }
    let disk = gpt(512, &[(1, "same", 10, 20), (2, "same", 40, 50), (3, "long", 190, 100)]);
    let listed = "1 \"same\" (10240 bytes at byte 5120), 2 \"same\" (25600 bytes at byte 20480)";
    for (choice, expected) in [
        ("7", &*format!("--partition 7: the disk has {listed}")),
        ("other", "--partition \"other\": the disk has 1"),
        ("same", "several partitions have this label, use a number: 1"),
        ("3", "it ends at byte 148480, but the disk has 102400"),
    ] {
        assert!(message(&disk, choice).contains(expected), "{}", message(&disk, choice));
    }
    assert!(message(&archive, "1").contains("not a disk with partitions"));
    // Without a choice, the error lists them.
    let dir = TempDir::in_memory("disk").unwrap();
    fs::write(dir.join("disk"), &disk).unwrap();
    let error = open(&dir.join("disk"), &SourceOptions::default()).map(drop).unwrap_err().to_string();
    assert!(
        error.contains("this is a disk; choose a partition with --partition: ") && error.contains(listed),
        "{error}"
    );
    for text in ["0", ""] {
        assert!(text.parse::<PartitionChoice>().is_err(), "{text}");
    }
}

/// Tables written by sfdisk.
#[test]
fn tables_of_sfdisk_are_read() {
    if Command::new("sfdisk").arg("--version").output().is_err() {
        return without("sfdisk");
    }
    let dir = TempDir::new("disk").unwrap();
    let path = dir.join("disk");
    let cases = [
        (
            "label: gpt\nfirst-lba: 64\nstart=64, size=100, name=first\nstart=200, size=300, name=\"second one\"\n",
            owned(&[(1, "first", 64, 100), (2, "second one", 200, 300)]),
        ),
        (
            "label: dos\nstart=64, size=100, type=83\nstart=1000, size=3000, type=5\nstart=1064, size=100, type=83\n\
             start=2000, size=500, type=83\n",
            owned(&[(1, "", 64, 100), (5, "", 1064, 100), (6, "", 2000, 500)]),
        ),
    ];
    for (script, expected) in cases {
        fs::write(&path, vec![0; 4 << 20]).unwrap();
        let mut child = Command::new("sfdisk").arg("-q").arg(&path).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success());
        assert_eq!(places(&fs::read(&path).unwrap(), SECTOR), expected);
    }
}
