"""The tasks, one folder each: what language models, translators and classifiers do differently."""
