use super::*;
use crate::help::topics;

fn keys(list: &str) -> Result<LayoutKeys, String> {
    let layout = list.split(',').map(str::parse).collect::<Result<_, _>>()?;
    Ok(LayoutKeyArgs { layout }.keys())
}

#[test]
fn keys_have_values_and_the_last_one_counts() {
    let list = "align=4k,align=16k,align-image=1M,chunk-size=64k,chunk-indexes,inline-data=off,inodes=extended,dot=off,\
        xattr-share=3,xattr-prefix=user.a.,xattr-prefix=user.b=c,root-xattrs=1k,max-extent=100k,checksum=off,\
        packed-cluster=8k,extents=encoded,tail-packing,compress-dirs=on,metadata=16k:zstd:9";
    let expected = LayoutKeys {
        align: Some(16 << 10),
        align_image: Some(1 << 20),
        chunk_size: Some(64 << 10),
        chunk_indexes: true,
        inline_data: false,
        extended_inodes: true,
        dot: false,
        xattr_share: 3,
        xattr_prefixes: vec![b"user.a.".to_vec(), b"user.b=c".to_vec()],
        root_xattrs: 1024,
        max_extent: Some(100 << 10),
        checksum: false,
        packed_cluster: Some(8192),
        extents: Some(Extents::Encoded),
        tail_packing: true,
        compress_dirs: true,
        metadata: Some(MetadataKey::By { len: 16 << 10, method: Some("zstd,9".into()) }),
    };
    assert_eq!(keys(list), Ok(expected));
    let usual = || MetadataKey::By { len: 32 << 10, method: None };
    for (list, metadata) in
        [("metadata", usual()), ("metadata=on", usual()), ("metadata=8k,metadata=off", MetadataKey::Off)]
    {
        assert_eq!(keys(list), Ok(LayoutKeys { metadata: Some(metadata), ..LayoutKeys::default() }));
    }
    let list = "tail-packing,tail-packing=off,inodes=extended,inodes=compact,checksum=on,extents=encoded,extents=index";
    assert_eq!(keys(list), Ok(LayoutKeys { extents: Some(Extents::Index), ..LayoutKeys::default() }));
}

#[test]
fn errors_name_the_key_the_value_and_the_form() {
    for (list, message) in [
        ("align", "align: no value; use align=SIZE"),
        ("align=", "align=: no value; use align=SIZE"),
        ("inline-data", "inline-data: no value; use inline-data=off"),
        ("checksum=no", "checksum=no: not off or on; use checksum=off"),
        ("inodes=long", "inodes=long: not compact or extended; use inodes=extended"),
        ("extents=both", "extents=both: not index or encoded; use extents=index|encoded"),
        ("tail-packing=yes", "tail-packing=yes: not off or on; use tail-packing"),
        ("xattr-share=0", "xattr-share=0: not 1 or more; use xattr-share=N"),
        ("xattr-share=x", "xattr-share=x: not a number; use xattr-share=N"),
    ] {
        assert_eq!(keys(list).unwrap_err(), message);
    }
    assert!(keys("chunk-size=x").unwrap_err().starts_with("chunk-size=x: "));
    let unknown = keys("align=4k,frob=1").unwrap_err();
    assert!(unknown.starts_with("`frob` is no key; keys: align=SIZE, align-image=SIZE, checksum=off, "), "{unknown}");
}

#[test]
fn the_topic_has_every_key() {
    let text = topics::find("layout").unwrap().text();
    for key in KEYS {
        let is_term = |line: &str| {
            let term = line.strip_prefix("  ").and_then(|line| line.strip_prefix(key.name));
            term.is_some_and(|rest| rest.is_empty() || rest.starts_with(['=', ' ', '[']))
        };
        assert!(text.lines().any(is_term), "{}", key.name);
    }
}
