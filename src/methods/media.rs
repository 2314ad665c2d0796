//! Images, sounds and other binary contents in results: as large as they may be.

use crate::protocol::call::Outcome;
use crate::protocol::call::RpcError;
use crate::protocol::code;
use crate::protocol::json::Json;
use crate::protocol::json::Kind;

/// Where the blocks of a result are.
#[derive(Clone, Copy)]
pub(super) enum Blocks {
    /// A tool's `content`.
    Content,
    /// The `content` of a prompt's `messages`.
    Messages,
    /// What a resource has in it.
    Contents,
}

/// What is wrong with a result of which one block has more than `most` bytes of base64. A result that is
/// not larger as a whole is not looked into.
///
/// spec: server/tools, Security Considerations; server/resources, Binary Content
pub(super) fn too_large(result: &Json, blocks: Blocks, most: usize) -> Option<String> {
    if result.bytes().len() <= most {
        return None;
    }
    let larger = |block: Json| size(&block, blocks).filter(|size| *size > most);
    let found = match blocks {
        Blocks::Content => result.member("content")?.elements().find_map(larger),
        Blocks::Contents => result.member("contents")?.elements().find_map(larger),
        Blocks::Messages => {
            let contents = result.member("messages")?;
            let contents: Vec<_> =
                contents.elements().filter_map(|message| message.member("content")).collect();
            contents.into_iter().find_map(|content| match content.kind() {
                Kind::Array => content.elements().find_map(larger),
                _ => larger(content),
            })
        }
    };
    found.map(|size| {
        format!("the backend's result has an image, a sound or a file of {size} bytes of base64; at most {most} are relayed")
    })
}

/// An outcome, or the error that says that its result has a block that is too large.
pub(super) fn within(outcome: Outcome, blocks: Blocks, most: usize) -> Outcome {
    match &outcome {
        Outcome::Result(result) => too_large(result, blocks, most).map_or(outcome, |message| {
            Outcome::Error(RpcError { code: code::INTERNAL_ERROR, message, data: None })
        }),
        Outcome::Asks(_) | Outcome::Task(_) | Outcome::Error(_) => outcome,
    }
}

/// The bytes of base64 in one block.
fn size(block: &Json, blocks: Blocks) -> Option<usize> {
    let blob = |resource: &Json| text(resource.member("blob"));
    match blocks {
        Blocks::Contents => blob(block),
        Blocks::Content | Blocks::Messages => {
            text(block.member("data")).max(block.member("resource").as_ref().and_then(blob))
        }
    }
}

/// The length of a string as it is written, without its quotes.
fn text(value: Option<Json>) -> Option<usize> {
    value.filter(|value| value.kind() == Kind::String).map(|value| value.bytes().len().saturating_sub(2))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::Blocks;
    use super::too_large;
    use crate::protocol::json::Json;

    #[test]
    fn the_largest_block_decides_wherever_it_is() {
        let (fits, large) = ("A".repeat(100), "A".repeat(101));
        for (blocks, result) in [
            (Blocks::Content, r#"{"content":[{"type":"text","text":"AAAA"},{"type":"image","data":"$"}]}"#),
            (Blocks::Content, r#"{"content":[{"type":"resource","resource":{"uri":"x:","blob":"$"}}]}"#),
            (Blocks::Messages, r#"{"messages":[{"content":{"type":"audio","data":"$"}}]}"#),
            (Blocks::Messages, r#"{"messages":[{"content":[{"type":"image","data":"$"}]}]}"#),
            (Blocks::Contents, r#"{"contents":[{"uri":"x:","text":""},{"uri":"x:","blob":"$"}]}"#),
        ] {
            let judge = |blob: &str| {
                let result = Json::parse(Bytes::from(result.replace('$', blob)), 64).unwrap();
                too_large(&result, blocks, 100)
            };
            assert_eq!(judge(&fits), None, "{result}");
            assert!(judge(&large).unwrap().contains("of 101 bytes"), "{result}");
        }
        for small in [r#"{"content":7,"x":"$"}"#, r#"{"content":[7,{"data":7}],"x":"$"}"#, r#"{"text":"$"}"#]
        {
            let result = Json::parse(Bytes::from(small.replace('$', &large)), 64).unwrap();
            assert_eq!(too_large(&result, Blocks::Content, 100), None, "{small}");
        }
    }
}
