use super::*;
use kiln_builder::{Dedupe, Fragments, MetadataChoice, MetadataCompression};

#[test]
fn refusals_name_the_options_of_the_command_line() {
    let kernel = |text: &str| Some(text.parse().unwrap());
    let default = Choices::default;
    let plain = || Choices { preset: Preset::Plain, ..default() };
    let metadata = Some(MetadataCompression::By(MetadataChoice { pcluster_len: 5000, method: None }));
    for (choices, message) in [
        (
            Choices { block_len: Some(1024), kernel: kernel("6.3"), ..plain() },
            "--block-size 1024 needs Linux 6.4, but the image is for Linux 6.3",
        ),
        (Choices { block_len: Some(256), ..plain() }, "--block-size 256: use a power of two, 512 to 64k"),
        (Choices { kernel: kernel("5.3"), ..plain() }, "--kernel 5.3: images are made for Linux 5.4 and later"),
        (
            Choices { pcluster_len: Some(8192), ..plain() },
            "--cluster-size: nothing is compressed: name an algorithm with --compress",
        ),
        (
            Choices { pcluster_len: Some(1000), ..default() },
            "--cluster-size 1000: use a multiple of 4096 bytes, up to 1048576",
        ),
        (
            Choices { dedupe: Some(Dedupe::Parts), kernel: kernel("6.0"), ..default() },
            "--dedupe parts needs Linux 6.1, but the image is for Linux 6.0",
        ),
        (
            Choices { fragments: Some(Fragments::Off), packed_pcluster_len: Some(4096), ..default() },
            "--layout packed-cluster: no files are packed: see --fragments",
        ),
        (
            Choices { encoded_extents: Some(true), tail_packing: true, ..default() },
            "--layout tail-packing: not with encoded extents: see --layout extents",
        ),
        (Choices { metadata, ..default() }, "--layout metadata=5000: use a multiple of 4096 bytes, up to 1048576"),
        (
            Choices { tries: methods("--try ", "lz4,zstd,9,dictsize=4k").unwrap(), kernel: kernel("6.6"), ..default() },
            "zstd came with Linux 6.10, but the image is for Linux 6.6",
        ),
    ] {
        assert_eq!(refusal(&choices.build_options().unwrap_err(), &choices).to_string(), message);
    }
    assert_eq!(
        method("-z ", "gzip").unwrap_err().to_string().split_once(": unknown").map(|(name, _)| name.to_owned()),
        Some("-z gzip".into())
    );
}

#[test]
fn numbers_and_options_belong_to_the_method_before_them() {
    let levels: Vec<_> = methods("--try ", "lz4,zstd,9,dictsize=4k,lzma,level=3").unwrap();
    let levels: Vec<_> = levels.into_iter().map(|choice| (choice.method, choice.level, choice.window_len)).collect();
    use kiln_codec::Method;
    assert_eq!(
        levels,
        [(Method::Lz4, Some(1), None), (Method::Zstd, Some(9), Some(4096)), (Method::Lzma, Some(3), None)]
    );
}
