"""Where completions come from: model endpoints over HTTP, scripted models, and recordings of either.

Read in this order: `chat_wire` and `chat_stream` (pure: the OpenAI chat format),
`http_errors` (pure: what a failure means), `lanes` (many small pools instead of a
large one), `openai_chat` (the provider that puts those to work), `estimates`
(pure: the worst case of a request), `closing`,
`model_names` (pure), then `script_file` (pure) and `scripted`. At last `exchange_codec`
(pure: requests as digests, exchanges as lines), `recording_file`, `recording_provider`,
`replay_index` and `replay_provider`.
"""
