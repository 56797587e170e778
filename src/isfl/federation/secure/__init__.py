"""Secure aggregation: the server learns the sum of the clients' updates, and no single one.

K. Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning", CCS 2017, on a regular graph
of neighbours: J. H. Bell, K. A. Bonawitz, A. Gascon, T. Lepoint, M. Raykova, "Secure Single-Server Aggregation with
(Poly)Logarithmic Overhead", CCS 2020. With `x_u` the quantised update of client u, every client uploads

    y_u = x_u + PRG(b_u) + sum_{v > u} PRG(s_uv) - sum_{v < u} PRG(s_uv)   (mod 2^32)

over its neighbours v. The masks `s_uv` that two neighbours agree on cancel in the sum. The server removes the rest with
shares of the secrets: `b_u` of those who uploaded, the key behind `s_uv` of those who were lost.

| phase | client to server | server to client |
|---|---|---|
| `keys` | public keys of this round | - |
| `shares` | shares of its secrets, sealed for each neighbour | the neighbours' keys |
| training | the masked update | the model, the neighbours that are still there |
| `unmask` | one share per neighbour | the sealed shares, and who uploaded |

`settings.py` has the settings, `quantise.py` integers for updates, `ciphers.py` and `sharing.py` the primitives,
`tables.py` the form of the messages, `client.py` and `server.py` the phases on each side, `collect.py` their order.
"""
