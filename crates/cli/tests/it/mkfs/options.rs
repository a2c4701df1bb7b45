//! Every option is accepted or refused as MKFS.md says.

use super::{Place, UUID};
use crate::common::stderr;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// All options but `-h` and `-V`, one command line for each way to write them.
const ACCEPTED: [&[&str]; 94] = [
    &[],
    &["-b4096"],
    &["-b", "4k"],
    &["-b512"],
    &["-b1k", "-zzstd", "-C3072"],
    &["-b64k", "-zlz4"],
    &["-C65536"],
    &["-zlz4", "-C", "64k"],
    &["-zlz4:zstd,3:lzma", "-C", "64k"],
    &["-d0"],
    &["-d", "9"],
    &["-E", ""],
    &["-E48bit"],
    &["-zzstd", "-E48bit"],
    &["-zlz4", "-Eall-fragments"],
    &["-zlz4", "-Eall-fragments=16k,dedupe"],
    &["-zlz4", "-Efragments=8192"],
    &["-zlz4", "-Efragments,^fragments"],
    &["-Ededupe"],
    &["-Edot-omitted,force-chunk-indexes,force-inode-blockmap,force-inode-extended"],
    &["-Efragdedupe", "-Efragdedupe=full,^fragdedupe"],
    &["-E^inline_data,noinline_data,inline_data"],
    &["-Elegacy-compress,nosbcrc,plain-xattr-prefixes,xattr-name-filter,^xattr-name-filter,ztailpacking"],
    &["-L", "fifteen bytes.."],
    &["-m4096"],
    &["-zzstd", "-m4k"],
    &["-zlz4", "-m", "64k:zstd,level=9"],
    &["-m16384:lzma", "-E48bit"],
    &["-zzstd", "-E48bit,all-fragments", "-m32k", "--zD"],
    &["-T", "100", "--mkfs-time"],
    &["-Uclear"],
    &["-U", "random"],
    &["-U", UUID],
    &["-x", "-1"],
    &["-x0"],
    &["-x1000"],
    &["-zlz4"],
    &["-z", "lz4hc,12"],
    &["-zlz4hc,level=0"],
    &["-zlzma,level=1,dictsize=1m,lc=3,lp=0,pb=2"],
    &["-zlzma,100"],
    &["-zdeflate,0"],
    &["-zlibdeflate,12"],
    &["-zzstd,level=22,dictsize=1048576"],
    &["--async-queue-limit=16"],
    &["--aufs"],
    &["--chunksize=4096"],
    &["--chunksize=65536", "-zlz4", "-Eforce-chunk-indexes"],
    &["--chunksize=8388608", "-Eforce-inode-blockmap,force-chunk-indexes,^force-chunk-indexes"],
    &["--clean"],
    &["--clean=data"],
    &["--dsunit=1"],
    &["--dsunit=16", "-zlz4"],
    &["-b1024", "--dsunit=3"],
    &["--exclude-path=nothing"],
    &["--exclude-regex=^nothing$"],
    &["--fsalignblks=1"],
    &["--fsalignblks=512"],
    &["--gid-offset=0"],
    &["--uid-offset", "0"],
    &["--mkfs-time"],
    &["--mount-point=/system"],
    &["--max-extent-bytes=8192", "-zlz4", "-C64k"],
    &["--max-extent-bytes=-16384", "-zzstd", "-E48bit"],
    &["--MZ"],
    &["--MZ=0"],
    &["--MZ=i"],
    &["--MZ=id"],
    &["--offset=0"],
    &["--ovlfs-strip"],
    &["--ovlfs-strip=1"],
    &["--ovlfs-strip=0"],
    &["--preserve-mtime"],
    &["--ignore-mtime", "--preserve-mtime"],
    &["--quiet"],
    &["--root-xattr-isize=0"],
    &["--root-xattr-isize=1000"],
    &["--sort=path"],
    &["--sort", "none"],
    &["--workers=0"],
    &["--workers", "1"],
    &["--workers=1000"],
    &["--work=2"],
    &["--xattr-inode-digest"],
    &["--xattr-inode-digest=name", "--xattr-prefix=security.x", "-Efragments", "-zlz4"],
    &["--xattr-inode-digest", "--xattr-prefix=user.long.", "-m4096", "-b1k", "-zlz4", "--chunksize=4096"],
    &["--xattr-prefix=user.long.", "--xattr-prefix", "trusted.x", "-Eplain-xattr-prefixes"],
    &["--zD"],
    &["--zD=0"],
    &["-zlz4", "--zD=1"],
    &["--zfeature-bits=0"],
    &["--zfeature-bits=0xff"],
    &["-zlz4", "--zfeature-bits=215"],
    &["--"],
];

/// Options that are refused, with the message.
const REFUSED: [(&[&str], &str); 88] = [
    (&["--frob"], "mkfs.erofs: unrecognized option '--frob'"),
    (&["-q"], "invalid option -- 'q'"),
    (&["-b8000"], "<E> erofs: invalid block size 8000"),
    (&["-b256"], "invalid block size 256"),
    (&["-b1k", "-zlz4", "-C512"], "invalid physical clustersize 512"),
    (&["-b512", "-zlz4", "-C256k"], "invalid physical clustersize 262144"),
    (&["-C5000"], "<E> erofs: invalid physical clustersize 5000"),
    (&["-C2m"], "clustersize 2097152"),
    (&["-C0"], "clustersize 0"),
    (&["-d10"], "<E> erofs: invalid debug level 10"),
    (&["-Efrob"], "<E> erofs: unknown extended option frob"),
    (&["-Ededupe,"], "unknown extended option"),
    (&["-Efragments=5000"], "invalid fragment size 5000"),
    (&["-Efragdedupe=some"], "unknown extended option fragdedupe=some"),
    (&["-Lsixteen bytes..."], "<E> erofs: invalid volume label"),
    (&["-mmany"], "<E> erofs: invalid metadata pcluster size many"),
    (&["-m5000"], "invalid metadata pcluster size 5000"),
    (&["-m4096:gzip"], "invalid compressor gzip"),
    (&["-Tnow"], "<E> erofs: invalid UNIX timestamp now"),
    (&["-Unone"], "<E> erofs: invalid UUID none"),
    (&["-xmany"], "<E> erofs: invalid xattr tolerance many"),
    (&["-zgzip"], "<E> erofs: invalid compressor gzip"),
    (&["-zlz4,3"], "lz4,3"),
    (&["-zzstd,23"], "zstd,23"),
    (&["-zlz4:"], "<E> erofs: invalid compressor lz4:"),
    (&["-zzstd,dictsize=1000"], "<E> erofs: invalid compressor zstd,dictsize=1000"),
    (&["--all-root=1"], "doesn't allow an argument"),
    (&["--async-queue-limit=x"], "invalid async-queue-limit x"),
    (&["--blobdev=x"], "<E> erofs: --blobdev must be used together with --chunksize"),
    (
        &["--blobdev=x", "--chunksize=4096", "-Eforce-inode-blockmap"],
        "<E> erofs: --blobdev cannot work with block map currently",
    ),
    (&["--chunksize=5000"], "<E> erofs: chunksize 5000 must be a power of two"),
    (&["--chunksize=2048"], "<E> erofs: chunksize 2048 must be larger than block size"),
    (&["--chunksize=2147483648"], "up to 1073741824"),
    (&["--chunksize=64k"], "invalid chunksize 64k"),
    (&["--clean=rvsp"], "--clean: not yet supported"),
    (&["--clean=0"], "--clean: not yet supported"),
    (&["--compress-hints=/missing"], "/missing: cannot read"),
    (&["--dsunit=262145"], "<E> erofs: invalid dsunit 262145"),
    (&["--dsunit=x"], "invalid dsunit x"),
    (&["--exclude-regex=("], "<E> erofs: invalid regex ("),
    (&["--file-contexts=/missing"], "/missing: cannot read"),
    (&["--force-uid=x"], "<E> erofs: invalid uid x"),
    (&["--force-uid=-1"], "invalid uid -1"),
    (&["--force-gid=4294967295"], "<E> erofs: invalid gid 4294967295"),
    (&["--uid-offset=x"], "<E> erofs: invalid uid offset x"),
    (&["--gid-offset=x"], "<E> erofs: invalid gid offset x"),
    (&["--uid-offset=-9999999"], "uid 0 with the offset -9999999"),
    (&["--fs-config-file=/missing"], "/missing: cannot read"),
    (&["--product-out=x"], "--product-out: not yet supported"),
    (&["--fsalignblks=18446744073709551615"], "invalid fsalignblks 18446744073709551615"),
    (&["--gzinfo"], "--gzinfo: not yet supported"),
    (&["--gzinfo=x"], "--gzinfo: not yet supported"),
    (&["--gzip"], "--gzip must be used together with --tar"),
    (&["--incremental"], "--incremental: not yet supported"),
    (&["--incremental=data"], "--incremental: not yet supported"),
    (&["--max-extent-bytes=0"], "<E> erofs: invalid max extent bytes 0"),
    (&["--max-extent-bytes=2048", "-zlz4"], "extents of at most 2048 bytes: use 4096 or more"),
    (&["--MZ=1"], "<E> erofs: invalid metadata zone 1"),
    (&["--oci"], "--oci: not yet supported"),
    (&["--oci=f,layer=0"], "--oci: not yet supported"),
    (&["--offset=1000"], "--offset 1000: use a multiple of 512 bytes"),
    (&["--offset=x"], "invalid disk offset x"),
    (&["--ovlfs-strip=2"], "invalid --ovlfs-strip=2"),
    (&["--random-algorithms"], "--random-algorithms: not yet supported"),
    (&["--random-pclusterblks"], "--random-pclusterblks: not yet supported"),
    (&["--root-xattr-isize=1000000"], "<E> erofs: invalid root xattr isize 1000000"),
    (&["--s3=example.org,sig=4"], "--s3: not yet supported"),
    (&["--sort=size"], "invalid sort order size"),
    (&["--tar=i"], "src: "),
    (&["--tar=0"], "src: "),
    (&["--tar=headerball"], "src: "),
    (&["--tar=i,map"], "--tar=i,map: not yet supported: no map of the archive is written"),
    (&["--tar=headerball,map"], "--tar=headerball,map: not yet supported"),
    (&["--tar=f,map"], "--tar=f,map: not yet supported"),
    (&["--tar=x"], "<E> erofs: invalid --tar=x"),
    (&["--tar=f"], "src: "),
    (&["--ungzip"], "--ungzip must be used together with --tar"),
    (&["--unlzma=x"], "--unlzma must be used together with --tar"),
    (&["--unxz"], "--unxz must be used together with --tar"),
    (&["--vmdk-desc=/nowhere/x"], "/nowhere/x"),
    (&["--workers=x"], "<E> erofs: invalid worker number x"),
    (&["--workers=1025"], "invalid worker number 1025"),
    (&["--xattr-inode-digest="], "names of digests have 1 to 255 bytes"),
    (&["--xattr-prefix=long."], "prefix long. of extended attributes: begin it with user., trusted. or security."),
    (&["--xattr-prefix=user."], "prefix user. of extended attributes"),
    (&["--zD=2"], "<E> erofs: invalid --zD=2"),
    (&["--zfeature-bits=999"], "<E> erofs: unsupported zfeature bit 8"),
    (&["--quiet", "--tar=0,map"], "--tar=0,map: not yet supported"),
];

#[test]
fn options_that_are_accepted_keep_the_tree() {
    let place = Place::new();
    for args in ACCEPTED {
        place.makes(args);
        place.holds_the_tree();
    }
}

#[test]
fn options_that_are_refused_leave_nothing() {
    let place = Place::new();
    for (args, words) in REFUSED {
        place.refuses(args, words);
    }
    let missing = place.scratch.path("missing");
    for (args, words) in [
        (&[][..], "<E> erofs: missing argument: FILE"),
        (&[&*place.image], "<E> erofs: missing argument: SOURCE"),
        (&[&place.image, &place.src, "third"], "<E> erofs: unexpected argument: third"),
        (&[&place.image, &missing], "missing: No such file"),
        (&[&format!("{missing}/image"), &place.src], "missing/image"),
        (&[&place.src, &place.src], "only a regular file is replaced"),
    ] {
        let output = place.run(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(stderr(&output).contains(words), "{args:?}: {}", stderr(&output));
    }
    assert_eq!(place.scratch.names(), ["mkfs.erofs", "src"]);
}

/// Returns the options in the first column of the tables, without anything behind `=` or `[`.
fn documented() -> BTreeSet<String> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("MKFS.md")).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `")?.split(" |").next());
    let names = rows.flat_map(|cell| cell.split('`').step_by(2));
    names.map(|name| name.split(['=', '[']).next().unwrap().to_owned()).collect()
}

#[test]
fn every_option_is_documented_and_tried() {
    let mut tried = BTreeSet::from(["--help", "-h", "--version", "-V"].map(String::from));
    let refused = REFUSED.iter().map(|(args, _)| *args).filter(|args| !["-q", "--frob"].contains(&args[0]));
    let elsewhere: [&[&str]; 3] = [
        &["--all-root", "--all-time", "--ignore-mtime", "--hard-dereference", "--file-contexts"],
        &["--force-uid", "--force-gid", "-Eforce-inode-compact"],
        &["-Edot-omitted"],
    ];
    for arg in ACCEPTED.into_iter().chain(refused).chain(elsewhere).flatten().filter(|arg| arg.starts_with('-')) {
        match arg.strip_prefix("-E") {
            Some(list) if !list.starts_with("frob") => {
                let names = list.split(',').map(|name| name.split('=').next().unwrap());
                tried.extend(names.filter(|name| !name.is_empty()).map(String::from));
            }
            _ if arg.starts_with("--") => drop(tried.insert(arg.split('=').next().unwrap().into())),
            _ => drop(tried.insert(arg[..2].into())),
        }
    }
    for written_otherwise in
        ["--", "--work", "^fragments", "^fragdedupe", "^xattr-name-filter", "-1", "^force-chunk-indexes"]
    {
        tried.remove(written_otherwise);
    }
    tried.remove("-E");
    let mut documented = documented();
    documented.remove("-E");
    assert_eq!(documented, tried, "left: in MKFS.md; right: in this file");
}
