# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A private certificate authority and its certificates.
"""

import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat


class Authority:
    """
    A certificate authority. Its own certificate, which is also valid for 127.0.0.1, is in the file `bundle`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.key = self._write_key("authority", self._key)
        self._name = self._named("private authority")
        self.bundle = folder / "authority.pem"
        certificate = self._signed(self._name, self._key.public_key(), is_authority=True)
        self.bundle.write_bytes(certificate.public_bytes(Encoding.PEM))

    @staticmethod
    def _named(name: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])

    def _signed(self, subject, public_key, *, is_authority: bool):
        now = dt.datetime.now(dt.UTC)
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        usage = dict.fromkeys(
            ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only")
            + ("decipher_only",),
            False,
        )
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(address, critical=False)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(
                x509.KeyUsage(digital_signature=True, key_cert_sign=is_authority, crl_sign=is_authority, **usage),
                critical=True,
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
            .add_extension(identifier, critical=False)
            .sign(self._key, hashes.SHA256())
        )

    def sign(self, name: str, *, password: str | None = None) -> tuple[str, str]:
        """
        Create a certificate for 127.0.0.1.

        :param name: The name of its owner.
        :param password: Encrypts the key.
        :returns: The paths of the certificate and of its key.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        certificate_file = self._folder / f"{name}.pem"
        certificate = self._signed(self._named(name), key.public_key(), is_authority=False)
        certificate_file.write_bytes(certificate.public_bytes(Encoding.PEM))
        return str(certificate_file), str(self._write_key(name, key, password))

    def _write_key(self, name: str, key, password: str | None = None) -> Path:
        encryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        file = self._folder / f"{name}.key"
        file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
        return file
