//! What a watcher that asked for the bundle says of the job: why it was taken. The watcher has seen the job's rhythm, which
//! nothing else in the bundle need show.

use ringleader_bundle::{Content, Origin};

use super::Context;

/// Name of the item within the host's folder.
const NAME: &str = "watch/events.jsonl";

pub(super) fn collect(context: &mut Context<'_, '_>) -> Result<(), ringleader_bundle::BundleError> {
    let item = context.item("watch-events", NAME, Origin::Reading("ringleader watch".to_owned()));
    let text = context.ask.watch_events.clone();
    context.bundle.add_bytes(item, Content::Text, text.as_bytes()).map(|_| ())
}
