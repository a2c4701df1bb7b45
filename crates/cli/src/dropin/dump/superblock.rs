//! The report of `dump.erofs` about a superblock.

use crate::console::report::Out;
use crate::console::text;
use kiln_format::feature::OLDEST_KERNEL;
use kiln_format::superblock::{ComprInfo, MAGIC, Superblock};
use kiln_format::{Algorithm, Compat, Incompat};
use kiln_read::Image;
use std::fmt::Display;
use std::io::{self, Write};
use uuid::Uuid;

/// Prints a label, and the value in column 47.
fn line(out: &mut Out, label: &str, value: impl Display) -> io::Result<()> {
    writeln!(out, "{:<45} {value}", format!("{label}:"))
}

pub fn print(out: &mut Out, image: &Image) -> io::Result<()> {
    let sb = image.superblock();
    line(out, "Filesystem magic number", format_args!("0x{MAGIC:X}"))?;
    line(out, "Filesystem blocksize", sb.block_bits.len())?;
    let extra = image.device_slots().iter().map(|slot| slot.blocks);
    line(out, "Filesystem blocks", extra.fold(sb.blocks, u64::saturating_add))?;
    line(out, "Filesystem inode metadata start block", sb.meta_blkaddr.0)?;
    line(out, "Filesystem shared xattr metadata start block", sb.xattr_blkaddr.0)?;
    line(out, "Filesystem root nid", sb.root_nid)?;
    if let Some(nid) = sb.packed_nid {
        line(out, "Filesystem packed nid", nid)?;
    }
    if let Some(nid) = sb.metabox_nid {
        line(out, "Filesystem metabox nid", nid)?;
    }
    match sb.compr_info {
        ComprInfo::Lz4MaxDistance(distance) => line(out, "Filesystem lz4_max_distance", distance)?,
        ComprInfo::AvailableAlgs(algs) => line(out, "Filesystem compr_algs", algorithms(algs))?,
    }
    line(out, "Filesystem sb_size", sb.record_len)?;
    line(out, "Filesystem inode count", sb.inos)?;
    line(out, "Filesystem created", ctime(sb.epoch.saturating_add(sb.build_time.into())))?;
    line(out, "Filesystem compatible features", names(&COMPAT, |bit| sb.compat.contains(bit)))?;
    line(out, "Filesystem incompatible features", names(&INCOMPAT, |bit| sb.incompat.contains(bit)))?;
    line(out, "Filesystem UUID", Uuid::from_bytes(sb.uuid))?;
    if !sb.incompat.is_empty() || sb.oldest_kernel() > OLDEST_KERNEL {
        line(out, "Required upstream Linux kernel version", sb.oldest_kernel())?;
    }
    Ok(())
}

/// Prints the keys of blkid(8), for `udevadm`'s IMPORT.
pub fn udev(out: &mut Out, sb: &Superblock) -> io::Result<()> {
    let uuid = Uuid::from_bytes(sb.uuid);
    writeln!(out, "ID_FS_UUID={uuid}\nID_FS_UUID_ENC={uuid}\nID_FS_TYPE=erofs\nID_FS_USAGE=filesystem")
}

/// Names of the bits in the other programs. One bit has two, as it has two meanings.
const COMPAT: [(Compat, &str); 6] = [
    (Compat::SB_CHKSUM, "sb_csum"),
    (Compat::MTIME, "mtime"),
    (Compat::XATTR_FILTER, "xattr_filter"),
    (Compat::SHARED_EA_IN_METABOX, "shared_ea_in_metabox"),
    (Compat::PLAIN_XATTR_PFX, "plain_xattr_pfx"),
    (Compat::ISHARE_XATTRS, "ishare_xattrs"),
];

const INCOMPAT: [(Incompat, &str); 9] = [
    (Incompat::LZ4_0PADDING, "lz4_0padding"),
    (Incompat::COMPR_CFGS, "compr_cfgs big_pcluster"),
    (Incompat::CHUNKED_FILE, "chunked_file"),
    (Incompat::DEVICE_TABLE, "device_table"),
    (Incompat::ZTAILPACKING, "ztailpacking"),
    (Incompat::FRAGMENTS, "fragments dedupe"),
    (Incompat::XATTR_PREFIXES, "xattr_prefixes"),
    (Incompat::ADDR_48BIT, "48bit"),
    (Incompat::METABOX, "metabox"),
];

/// Returns each name with a space behind it.
fn names<T: Copy>(table: &[(T, &str)], has: impl Fn(T) -> bool) -> String {
    table.iter().filter(|(bit, _)| has(*bit)).map(|(_, name)| format!("{name} ")).collect()
}

fn algorithms(available: u16) -> String {
    let has = |algorithm: &Algorithm| available & algorithm.bit() != 0;
    Algorithm::ALL.into_iter().filter(has).map(Algorithm::name).collect::<Vec<_>>().join(", ")
}

/// Formats seconds since 1970 as ctime(3) does, in UTC: `Tue Nov 14 22:13:20 2023`.
fn ctime(secs: i64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"]; // 1970 began on a Thursday
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let time = text::time(secs);
    let (date, clock) = time.split_once('T').unwrap_or((&time, ""));
    let mut parts = date.rsplitn(3, '-');
    let (day, month, year) = (parts.next(), parts.next(), parts.next().unwrap_or_default());
    let number = |part: Option<&str>| part.and_then(|part| part.parse::<usize>().ok()).unwrap_or(0);
    let month = MONTHS.get(number(month).wrapping_sub(1)).copied().unwrap_or_default();
    let weekday = DAYS[secs.div_euclid(86_400).rem_euclid(7) as usize];
    format!("{weekday} {month} {:>2} {} {}", number(day), clock.trim_end_matches('Z'), year)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_ctime() {
        for (secs, text) in [
            (0, "Thu Jan  1 00:00:00 1970"),
            (-1, "Wed Dec 31 23:59:59 1969"),
            (1_700_000_000, "Tue Nov 14 22:13:20 2023"),
            (951_782_400, "Tue Feb 29 00:00:00 2000"),
        ] {
            assert_eq!(ctime(secs), text);
        }
        assert!(ctime(i64::MIN).ends_with(|c: char| c.is_ascii_digit()));
    }
}
