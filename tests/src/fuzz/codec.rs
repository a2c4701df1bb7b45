//! Decoders of streams. Two results of one stream must not contradict each other.

use super::input::Input;
use kiln_codec::{DecodeLimits, Decoder, Want};
use kiln_format::Algorithm;

/// Maximum length of plain text in bytes.
const PLAIN_MAX_LEN: usize = 1 << 18;

pub fn lz4(data: &[u8]) {
    decode(Algorithm::Lz4, data);
}

pub fn lzma(data: &[u8]) {
    decode(Algorithm::Lzma, data);
}

pub fn deflate(data: &[u8]) {
    decode(Algorithm::Deflate, data);
}

pub fn zstd(data: &[u8]) {
    decode(Algorithm::Zstd, data);
}

fn decode(algorithm: Algorithm, data: &[u8]) {
    let mut input = Input(data);
    let len = input.u32() as usize % (PLAIN_MAX_LEN + 1);
    let front_len = input.u16() as usize * 5 % (len + 1);
    let limits = DecodeLimits { lzma_dict_size: 4096 << (input.u8() % 6), zstd_window_log: 10 + input.u8() % 11 };
    let mut decoder = Decoder::new(limits);
    // Otherwise the result may depend on the previous contents of the buffer.
    let comparable = Decoder::verify(algorithm, input.0, len).is_ok();
    // The bytes after the decoded ones differ, which detects bytes that are not written.
    let (mut whole, mut prefix, mut front) = (vec![0x11; len], vec![0x22; len], vec![0x33; front_len]);
    let decoded_whole = decoder.decode(algorithm, input.0, &mut whole, Want::Whole).is_ok();
    let decoded_prefix = decoder.decode(algorithm, input.0, &mut prefix, Want::Prefix).is_ok();
    let decoded_front = decoder.decode(algorithm, input.0, &mut front, Want::Prefix).is_ok();
    if decoded_whole && comparable {
        assert!(decoded_prefix && decoded_front, "whole but not in part");
        assert!(!comparable || whole == prefix, "whole and prefix differ");
    }
    if decoded_prefix {
        assert!(decoded_front, "a prefix, but not a shorter one");
        assert!(!comparable || prefix[..front_len] == front, "prefixes differ");
    }
    if algorithm == Algorithm::Lz4 && decoder.decode_lz4_unpadded(input.0, &mut front).is_ok() && decoded_prefix {
        assert!(!comparable || prefix[..front_len] == front, "without padding it differs");
    }
    // Earlier streams must not have an effect.
    let again = Decoder::new(limits).decode(algorithm, input.0, &mut prefix, Want::Whole).is_ok();
    assert_eq!(again, decoded_whole);
    assert!(!again || !comparable || prefix == whole);
}
