//! The salt of a tree, as asked for.

use crate::exit::Failure;
use kiln_verity::{Algorithm, BlockHasher, SALT_MAX_LEN};

/// Choice of `--salt`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Salt {
    /// 32 zeros, as containerd has.
    Zero,
    /// SHA-256 of the image's UUID.
    Content,
    /// No salt.
    None,
    /// These bytes.
    Bytes(Vec<u8>),
}

/// Parses the value of `--salt`.
pub fn parse(text: &str) -> Result<Salt, String> {
    match text {
        "zero" => return Ok(Salt::Zero),
        "content" => return Ok(Salt::Content),
        "none" | "-" => return Ok(Salt::None),
        _ => {}
    }
    let nibble = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    let pairs = text.as_bytes().chunks(2);
    let bytes: Option<Vec<u8>> = pairs
        .map(|pair| if let [high, low] = *pair { Some(nibble(high)? << 4 | nibble(low)?) } else { None })
        .collect();
    match bytes {
        Some(bytes) if (1..=SALT_MAX_LEN).contains(&bytes.len()) => Ok(Salt::Bytes(bytes)),
        Some(_) => Err(format!("a salt has 1 to {SALT_MAX_LEN} bytes")),
        None => Err("neither zero, content, none nor pairs of hexadecimal digits".to_owned()),
    }
}

impl Salt {
    /// Returns the bytes, for an image with this UUID.
    pub fn bytes(&self, uuid: Option<[u8; 16]>) -> Result<Vec<u8>, Failure> {
        match (self, uuid) {
            (Salt::Zero, _) => Ok(vec![0; 32]),
            (Salt::None, _) => Ok(Vec::new()),
            (Salt::Bytes(bytes), _) => Ok(bytes.clone()),
            (Salt::Content, Some(uuid)) => {
                Ok(BlockHasher::new(Algorithm::Sha256, &[]).digest(&uuid).as_bytes().to_vec())
            }
            (Salt::Content, None) => {
                Err(Failure::Usage("--salt content needs an EROFS image, of whose UUID the salt is made".to_owned()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn salts_are_words_or_digits() {
        assert_eq!(parse("zero").unwrap().bytes(None).unwrap(), [0; 32]);
        assert_eq!(parse("none").unwrap().bytes(None).unwrap(), Vec::<u8>::new());
        assert_eq!(parse("00fF").unwrap().bytes(None).unwrap(), [0, 255]);
        assert_eq!(parse("content").unwrap().bytes(Some([1; 16])).unwrap().len(), 32);
        assert!(parse("content").unwrap().bytes(None).is_err());
        for wrong in ["", "0", "0x", "random", &"00".repeat(257)] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
