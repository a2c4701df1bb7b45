//! A patch restores the new image, with images of every kind.

use crate::common::{apply, files, image, make, make_with, next, preset, sparse};
use kiln_builder::{BuildOptions, Choices, Compression, MethodChoice, Preset, Spec};
use kiln_codec::Method;
use kiln_delta::{MakeOptions, NewTree, Patch};

/// Makes and applies a patch between two versions. Returns its length, and the number of bytes
/// stored encoded.
fn delta(old: &BuildOptions, new: &BuildOptions, portable: bool) -> (u64, u64) {
    let files = files(1);
    let (old, new) = (image(&files, old), image(&next(&files, 2), new));
    let (patch, made) = make(&old, &new, portable);
    let (result, applied) = apply(&old, &patch).unwrap();
    assert!(result == new, "other bytes than those of the new image");
    assert_eq!((applied.new_len, applied.encoded), (new.len() as u64, made.encoded));
    (made.patch_len, made.carried)
}

#[test]
fn every_preset_is_encoded_again() {
    for one in Preset::ALL {
        let options = preset(one);
        let (len, carried) = delta(&options, &options, false);
        assert_eq!(carried, 0, "{one:?}");
        assert!(len < 60_000, "{one:?}: {len}");
    }
}

#[test]
fn portable_patches_store_encoded_bytes() {
    let options = preset(Preset::Balanced);
    let (len, carried) = delta(&options, &options, true);
    let (shorter, _) = delta(&options, &options, false);
    assert!(carried > 0 && shorter < len, "{carried} {shorter} {len}");
}

#[test]
fn one_preset_becomes_another() {
    for (old, new) in
        [(Preset::Fast, Preset::Balanced), (Preset::Plain, Preset::Archive), (Preset::Balanced, Preset::Plain)]
    {
        let (len, carried) = delta(&preset(old), &preset(new), false);
        assert!(len < 60_000 && carried == 0, "{old:?} {new:?}: {len} {carried}");
    }
}

#[test]
fn levels_windows_and_forms_of_extents_are_found() {
    let spec = |method, level, len| Spec::new(method, Some(level), len).unwrap();
    for (spec, encoded_extents) in [
        (spec(Method::Lz4hc, 12, 16 << 10), false),
        (spec(Method::Zstd, 9, 4 << 10), false),
        (spec(Method::Deflate, 7, 32 << 10), false),
        (spec(Method::Deflate, 9, 32 << 10).with_window(8 << 10).unwrap(), true),
        (spec(Method::Zstd, 15, 64 << 10), true),
        (spec(Method::Lzma, 3, 64 << 10), true),
    ] {
        let options = preset(Preset::Plain).with(|o| {
            o.compression.spec = Some(spec);
            o.compression.encoded_extents = encoded_extents;
        });
        let (len, carried) = delta(&options, &options, false);
        assert_eq!(carried, 0, "{spec:?} {encoded_extents}");
        assert!(len < 60_000, "{spec:?} {encoded_extents}: {len}");
    }
}

#[test]
fn compressed_metadata_and_ends_in_the_packed_inode_are_right() {
    let choices = Choices {
        preset: Preset::Balanced,
        compression: Some(Compression::By(MethodChoice::from(Method::Zstd))),
        metadata: Some(kiln_builder::MetadataCompression::By(kiln_builder::MetadataChoice {
            pcluster_len: 16 << 10,
            method: None,
        })),
        ..Choices::default()
    };
    let options = choices.build_options().unwrap().with(|o| o.work.scratch_dir = std::env::temp_dir());
    delta(&options, &options, false);
}

#[test]
fn equal_images_make_a_short_patch() {
    let old = image(&files(1), &preset(Preset::Balanced));
    let (patch, made) = make(&old, &old, false);
    assert!(patch.len() < 1000, "{}", patch.len());
    assert_eq!(made.literal, 0);
    assert!(apply(&old, &patch).unwrap().0 == old);
}

#[test]
fn the_same_images_make_the_same_patch() {
    let (old, new) = (image(&files(1), &preset(Preset::Fast)), image(&files(3), &preset(Preset::Balanced)));
    assert!(make(&old, &new, false).0 == make(&old, &new, false).0);
}

#[test]
fn holes_are_not_read() {
    // Even at some gigabytes per second, reading the hole would not end.
    for one in Preset::ALL {
        let (old, new) = (sparse(1 << 40, b"x\n", &preset(one)), sparse(1 << 40, b"x\ny\n", &preset(one)));
        let (patch, _) = make(&old, &new, false);
        assert!(apply(&old, &patch).unwrap().0 == new, "{one:?}");
    }
}

#[test]
fn looking_for_an_encoder_ends() {
    // A level that is found after failed attempts with others.
    let spec = Spec::new(Method::Lzma, Some(3), 64 << 10).unwrap();
    let options = preset(Preset::Plain).with(|o| {
        o.compression.spec = Some(spec);
        o.compression.encoded_extents = true;
    });
    let files = files(1);
    let (old, new) = (image(&files, &options), image(&next(&files, 2), &options));
    let made_within = |search_cost_max| {
        let options = MakeOptions { spool_dir: std::env::temp_dir(), search_cost_max, ..MakeOptions::default() };
        let (patch, made) = make_with(&old, &new, &options);
        assert!(apply(&old, &patch).unwrap().0 == new);
        made
    };
    let found = made_within(MakeOptions::default().search_cost_max);
    assert!(found.carried == 0 && found.search_cost > 0, "{found:?}");
    let none = made_within(0);
    // One attempt exceeds the limit.
    assert!(none.encoded == 0 && none.carried > 0 && none.search_cost < found.search_cost, "{none:?} {found:?}");
}

#[test]
fn only_patches_that_describe_a_hash_tree_need_a_new_program() {
    let files = files(1);
    let options = preset(Preset::Plain);
    let (old, new) = (image(&files, &options), image(&next(&files, 2), &options));
    let tree = NewTree { superblock: [7; 512], root_hash: vec![9; 64] };
    for (new_tree, version) in [(None, 1), (Some(tree), 2)] {
        let (patch, _) = make_with(&old, &new, &MakeOptions { new_tree: new_tree.clone(), ..MakeOptions::default() });
        assert_eq!(patch[8..12], u32::to_le_bytes(version));
        assert_eq!(Patch::open(&patch[..]).unwrap().header().new_tree, new_tree);
        assert!(apply(&old, &patch).unwrap().0 == new);
    }
}
