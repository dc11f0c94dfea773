"""What a release is made of: `audit` looks for known vulnerabilities in the locked packages, `sbom`
writes the bill of materials.
"""
