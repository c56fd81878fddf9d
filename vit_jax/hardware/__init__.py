# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Facts about machines: accelerators as sold, what is plugged in, memory of devices and hosts.

Imports only `errors` of this package. Open `topology` first: it lists the accelerators.
"""
