// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.26;

import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";
import {ERC3009} from "@openzeppelin/contracts/token/ERC20/extensions/draft-ERC3009.sol";
import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";
import {SignatureChecker} from "@openzeppelin/contracts/utils/cryptography/SignatureChecker.sol";

/**
 * Stand-in for USDC on the local chain: EIP-3009, six decimals, EIP-712 domain ("USDC", "2").
 * It is placed at USDC's own address by setting code, so no constructor ever runs there: nothing it says of itself may
 * live in storage. Anybody may mint; this chain has no money on it.
 */
contract LocalUsdc is ERC3009 {
    constructor() ERC20("", "") EIP712("USDC", "2") {}

    function name() public pure override returns (string memory) {
        return "USDC";
    }

    function symbol() public pure override returns (string memory) {
        return "USDC";
    }

    function version() external pure returns (string memory) {
        return "2";
    }

    function decimals() public pure override returns (uint8) {
        return 6;
    }

    function mint(address to, uint256 value) external {
        _mint(to, value);
    }

    /// Lift every account that holds less than its floor to that floor: safe to repeat, needs no read before it.
    function topUp(address[] calldata accounts, uint256[] calldata floors) external {
        for (uint256 i = 0; i < accounts.length; i++) {
            uint256 held = balanceOf(accounts[i]);
            if (held < floors[i]) _mint(accounts[i], floors[i] - held);
        }
    }

    /// Packed-signature form of EIP-3009, as USDC 2.2 has it: escrow collectors and contract wallets call this one.
    function transferWithAuthorization(
        address from,
        address to,
        uint256 value,
        uint256 validAfter,
        uint256 validBefore,
        bytes32 nonce,
        bytes calldata signature
    ) external {
        _checkSignature(TRANSFER_WITH_AUTHORIZATION_TYPEHASH, from, to, value, validAfter, validBefore, nonce, signature);
        _transferWithAuthorization(from, to, value, validAfter, validBefore, nonce);
    }

    function receiveWithAuthorization(
        address from,
        address to,
        uint256 value,
        uint256 validAfter,
        uint256 validBefore,
        bytes32 nonce,
        bytes calldata signature
    ) external {
        require(to == _msgSender(), ERC20InvalidReceiver(to));
        _checkSignature(RECEIVE_WITH_AUTHORIZATION_TYPEHASH, from, to, value, validAfter, validBefore, nonce, signature);
        _transferWithAuthorization(from, to, value, validAfter, validBefore, nonce);
    }

    function _checkSignature(
        bytes32 typehash,
        address from,
        address to,
        uint256 value,
        uint256 validAfter,
        uint256 validBefore,
        bytes32 nonce,
        bytes calldata signature
    ) private view {
        bytes32 hash = _hashTypedDataV4(
            keccak256(abi.encode(typehash, from, to, value, validAfter, validBefore, nonce))
        );
        require(SignatureChecker.isValidSignatureNow(from, hash, signature), ERC3009InvalidSignature());
    }
}
