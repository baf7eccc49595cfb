// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.26;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ICollector, PaymentInfo} from "./AuthCaptureEscrow.sol";

/// Brings refunds from the operator's own tokens, as far as it approved this contract for them.
contract OperatorRefundCollector is ICollector {
    using SafeERC20 for IERC20;

    address public immutable authCaptureEscrow;

    error OnlyAuthCaptureEscrow();

    constructor(address escrow) {
        authCaptureEscrow = escrow;
    }

    function collectorType() external pure returns (Kind) {
        return Kind.Refund;
    }

    function collectTokens(PaymentInfo calldata info, address store, uint256 amount, bytes calldata) external {
        require(msg.sender == authCaptureEscrow, OnlyAuthCaptureEscrow());
        IERC20(info.token).safeTransferFrom(info.operator, store, amount);
    }
}
