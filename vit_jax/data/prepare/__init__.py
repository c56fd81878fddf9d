# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""From what people have (archives, class folders, lists) to a prepared dataset in TFDS's format.

`archives` finds files without unpacking them, `layouts` and `imagenet` say what each one is,
`shards` writes records, `upstream` lets TFDS prepare what it knows. Start from `job.prepare`.
"""
