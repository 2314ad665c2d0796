//! Globs over names: `*` is any run of characters, `?` is one. In at most |glob| · |name| steps.

/// Whether `name`, whole and case-sensitively, fits `glob`.
pub fn matches(glob: &str, name: &str) -> bool {
    let (mut rest, mut left) = (glob.chars(), name.chars());
    // Behind the last `*`, and from where of the name it is tried again.
    let mut star = None;
    loop {
        match rest.next() {
            Some('*') => {
                star = Some((rest.clone(), left.clone()));
                continue;
            }
            Some(wanted) => {
                let found = left.next();
                if found.is_some_and(|found| wanted == '?' || wanted == found) {
                    continue;
                }
            }
            None if left.as_str().is_empty() => return true,
            None => {}
        }
        // Only the last `*` can need to take more: earlier ones fit as early as they can.
        let Some((behind, from)) = &mut star else { return false };
        if from.next().is_none() {
            return false;
        }
        (rest, left) = (behind.clone(), from.clone());
    }
}
