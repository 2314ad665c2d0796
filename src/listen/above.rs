//! What a resource lies below.

/// Most levels above a resource whose listeners hear of it.
const LEVELS: usize = 8;

/// A URI and what it lies below, the nearest first; of one that is too long to be anybody's, only that.
pub(super) fn upward(uri: &str, most: usize) -> impl Iterator<Item = &str> {
    let own = (uri.len() <= most).then_some(uri);
    let mut end = uri.len().min(most);
    while !uri.is_char_boundary(end) {
        end -= 1;
    }
    let cuts = uri[..end].rmatch_indices(['/', '#', '?']).take(LEVELS);
    let above = cuts.flat_map(move |(at, cut)| [(cut == "/").then_some(&uri[..=at]), Some(&uri[..at])]);
    own.into_iter().chain(above.flatten().filter(move |above| *above != uri))
}
