//! Requested windows: no match reaches further back, and decoders with no more memory than that can
//! read all streams.

mod inflate;

use crate::common::{Random, mixed, pack};
use kiln_codec::{DecodeLimits, Decoder, Encoder, Method, Spec, Want};

const METHODS: [Method; 3] = [Method::Lzma, Method::Deflate, Method::Zstd];

/// Returns a level of each encoder of a method.
fn levels(method: Method) -> &'static [i32] {
    match method {
        Method::Deflate => &[1, 3, 6, 9],
        Method::Zstd => &[1, 3, 4, 9, 19],
        _ => &[0, 6],
    }
}

/// Returns the window that the method uses, in bytes.
fn taken(spec: &Spec) -> usize {
    match spec.method {
        Method::Lzma => spec.lzma_dict_size() as usize,
        Method::Deflate => 1 << spec.deflate_window_bits(),
        _ => 1 << spec.zstd_window_log(),
    }
}

/// Returns true if the stream decodes to `text` with the window of `spec`.
fn decodes(spec: &Spec, stream: &[u8], text: &[u8]) -> bool {
    if spec.method == Method::Deflate {
        let (decoded, farthest) = inflate::inflate(stream);
        return decoded == text && farthest <= 1 << spec.deflate_window_bits();
    }
    let limits = match spec.method {
        Method::Lzma => DecodeLimits { lzma_dict_size: spec.lzma_dict_size(), ..Default::default() },
        _ => DecodeLimits { zstd_window_log: spec.zstd_window_log(), ..Default::default() },
    };
    // A prefix goes through the decoder's own window, even if it is the whole text.
    [Want::Whole, Want::Prefix].into_iter().all(|want| {
        let mut dst = vec![0; text.len()];
        let decoded = Decoder::new(limits).decode(spec.method.algorithm(), stream, &mut dst, want);
        decoded.is_ok() && dst == text
    })
}

#[test]
fn no_more_memory_is_needed_than_the_window() {
    let input = mixed(&mut Random(5), 200_000);
    for method in METHODS {
        let windows = method.windows().unwrap();
        for len in [*windows.start(), 3000 + windows.start(), 20_000, *windows.end()] {
            for (level, pcluster_len) in
                levels(method).iter().flat_map(|level| [(*level, 4 << 10), (*level, 256 << 10)])
            {
                let spec = Spec::new(method, Some(level), pcluster_len).unwrap().with_window(len).unwrap();
                let mut encoder = Encoder::new(&spec).unwrap();
                let mut at = 0;
                for pcluster in pack(&mut encoder, &spec, &input) {
                    let consumed = pcluster.filled.consumed;
                    let text = &input[at..at + consumed];
                    assert!(consumed == 0 || decodes(&spec, &pcluster.stream, text), "{spec:?} at {at}");
                    at += if consumed == 0 { spec.pcluster_len as usize } else { consumed };
                }
                let mut out = vec![0; input.len() + 4096];
                let produced = encoder.encode(&input, &mut out).unwrap().expect("there is room for anything");
                assert!(decodes(&spec, &out[..produced], &input), "{spec:?}");
            }
        }
    }
}

/// Noise that repeats within the window is found; beyond it, it is not.
#[test]
fn matches_reach_as_far_as_the_window() {
    let mut random = Random(8);
    for method in METHODS {
        let windows = method.windows().unwrap();
        for len in [windows.start() + 300, 5000, 20_000] {
            for &level in levels(method) {
                // One size that fills a buffer, and one that is cut from a stream (zstd).
                for pcluster_len in [64 << 10, 256 << 10] {
                    let spec = Spec::new(method, Some(level), pcluster_len).unwrap().with_window(len).unwrap();
                    let window_len = taken(&spec);
                    assert!(window_len <= len as usize && window_len > len as usize / 2);
                    let mut encoder = Encoder::new(&spec).unwrap();
                    // libzstd's fast levels do not look from one block into another unless the
                    // window holds both.
                    let within = if method == Method::Zstd { window_len / 2 } else { window_len } - 40;
                    for (noise_len, is_found) in [(within, true), (window_len + 1, false)] {
                        let noise = random.bytes(noise_len);
                        let text = [noise.as_slice(), &noise].concat();
                        let mut out = vec![0; spec.pcluster_len as usize];
                        let encoded = encoder.encode(&text, &mut out).unwrap().expect("there is room");
                        encoder.reset();
                        let filled = encoder.fill(&text, &mut out).unwrap();
                        // Fast searches skip positions after a long text without a match.
                        let most = if is_found { text.len() * 9 / 10 } else { usize::MAX };
                        let context = format!("{spec:?}: {noise_len} twice: {encoded}, {filled:?}");
                        assert_eq!(
                            (encoded < text.len(), filled.consumed == text.len()),
                            (is_found, is_found),
                            "{context}"
                        );
                        assert!(encoded < most && filled.produced < most, "{context}");
                    }
                }
            }
        }
    }
}

/// A smaller window rejects streams written for a larger one: the tests above can fail.
#[test]
fn smaller_windows_do_not_do() {
    let noise = Random(6).bytes(6000);
    let text = noise.repeat(2);
    for method in METHODS {
        let spec = |len| Spec::new(method, None, 64 << 10).unwrap().with_window(len).unwrap();
        let mut out = vec![0; 64 << 10];
        let filled = Encoder::new(&spec(32 << 10)).unwrap().fill(&text, &mut out).unwrap();
        assert_eq!(filled.consumed, text.len());
        let stream = &out[..filled.produced];
        assert!(decodes(&spec(32 << 10), stream, &text), "{method:?}");
        assert!(!decodes(&spec(4 << 10), stream, &text), "{method:?}");
    }
}

#[test]
fn unsupported_windows_are_rejected() {
    for method in Method::ALL {
        for level in [1, 9, 12] {
            let Ok(spec) = Spec::new(method, Some(level), 4096) else { continue };
            let takes = |len| {
                let made = spec.with_window(len);
                let by_hand = Encoder::new(&Spec { window_len: Some(len), ..spec });
                assert_eq!(made.is_ok(), by_hand.is_ok(), "{spec:?}, {len}");
                made.is_ok()
            };
            let Some(windows) = method.windows() else {
                assert!(!takes(4096));
                continue;
            };
            assert!(!takes(windows.start() - 1) && !takes(windows.end() + 1) && takes(*windows.end()), "{spec:?}");
            assert_eq!(takes(*windows.start()), method != Method::Deflate || level < 10, "{spec:?}");
        }
    }
}
