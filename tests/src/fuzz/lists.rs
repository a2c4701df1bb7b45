//! Text files beside images: hot lists and stamps.

use kiln_read::hotlist::HotList;
use kiln_revise::Stamps;

/// A parsed list, written and parsed again, must be the same; new entries of several lists must be
/// distinguished.
pub fn hot_list(data: &[u8]) {
    let list = match HotList::parse(data, "list") {
        Ok(list) => list,
        Err(error) => return assert!(error.to_string().starts_with("list")),
    };
    let text = list.to_string();
    assert_eq!(HotList::parse(text.as_bytes(), "again").as_ref(), Ok(&list));
    assert!(list.files().len() <= list.entries().len());
    let merged = HotList::merge(std::slice::from_ref(&list));
    assert!(list.without(&merged).entries().is_empty(), "nothing is lost");
    assert!(merged.without(&list).entries().is_empty(), "nothing is made up");
    assert_eq!(HotList::merge(&[merged.clone(), merged.clone()]), merged, "a list is not new beside itself");
}

/// Input: stamps, checked against the image that they name, and against another one.
pub fn stamps(data: &[u8]) {
    let first = data.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let digits = first.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
    let nibble = |digit: &u8| (*digit as char).to_digit(16).map(|value| value as u8);
    let nibbles: Option<Vec<u8>> = digits.iter().map(nibble).collect();
    let identity: Vec<u8> = nibbles.unwrap_or_default().chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
    for identity in [&identity[..], b"another"] {
        if let Err(error) = Stamps::parse(data, "stamps", identity) {
            assert!(error.to_string().starts_with("stamps"));
        }
    }
}
