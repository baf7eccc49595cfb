// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.26;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {AuthCaptureEscrow, ICollector, PaymentInfo} from "./AuthCaptureEscrow.sol";

interface IReceiveWithAuthorization {
    function receiveWithAuthorization(
        address from,
        address to,
        uint256 value,
        uint256 validAfter,
        uint256 validBefore,
        bytes32 nonce,
        bytes calldata signature
    ) external;
}

/**
 * Brings a payer's tokens into the escrow by its EIP-3009 authorization, whose nonce is the payment's hash without a payer:
 * so what was signed is every term of the payment. Signatures of wallets that do not exist yet (ERC-6492) are not unpacked.
 */
contract Eip3009Collector is ICollector {
    using SafeERC20 for IERC20;

    AuthCaptureEscrow public immutable authCaptureEscrow;

    error OnlyAuthCaptureEscrow();

    constructor(AuthCaptureEscrow escrow) {
        authCaptureEscrow = escrow;
    }

    function collectorType() external pure returns (Kind) {
        return Kind.Payment;
    }

    function collectTokens(PaymentInfo calldata info, address store, uint256 amount, bytes calldata data) external {
        require(msg.sender == address(authCaptureEscrow), OnlyAuthCaptureEscrow());
        PaymentInfo memory signed = info;
        signed.payer = address(0);
        IReceiveWithAuthorization(info.token).receiveWithAuthorization(
            info.payer,
            address(this),
            info.maxAmount,
            0,
            info.preApprovalExpiry,
            authCaptureEscrow.getHash(signed),
            data
        );
        IERC20 token = IERC20(info.token);
        if (info.maxAmount > amount) token.safeTransfer(info.payer, info.maxAmount - amount);
        token.safeTransfer(store, amount);
    }
}
