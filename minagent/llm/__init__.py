"""Language models: one verb, `LanguageModel.do_stream`, one file per wire.

Nothing is imported here; take what you need from its file.
"""
